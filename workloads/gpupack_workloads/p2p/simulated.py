# SPDX-License-Identifier: Apache-2.0
"""Without GPUs: another process acts as the owner, with shared memory as its memory.

The owner fills its memory, waits until the reader has read and changed every byte, and counts what
is wrong then.
"""

import multiprocessing
import shutil
import time
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import torch

from gpupack_workloads.errors import OutOfMemory, PeersMissing, WrongResult
from gpupack_workloads.p2p.pattern import KEY, count_wrong, write
from gpupack_workloads.results import Scalar

SHARED = Path("/dev/shm")  # noqa: S108  the memory that processes share has this name
SECONDS = 60
ROUNDS = 50
GB = 1e9


def measure_simulated(size: int, seed: int) -> dict[str, Scalar]:
    """Check and time a pair of processes.

    Raises:
        OutOfMemory: there is not as much shared memory.
        WrongResult: a byte is wrong on either side.
    """
    require_shared(size)
    memory = SharedMemory(create=True, size=size)
    try:
        return _with_owner(memory, size, seed)
    finally:
        memory.close()
        memory.unlink()


def require_shared(size: int) -> None:
    """Check that shared memory is large enough; a container usually has 64 MiB of it."""
    free = shutil.disk_usage(SHARED).free
    if size > free:
        raise OutOfMemory(
            f"{size} bytes of shared memory are needed and {SHARED} has {free}: set a smaller"
            " --size, or mount an emptyDir of medium Memory there"
        )


def own(name: str, size: int, seed: int, line: Connection) -> None:
    """Act as the owner: fill, answer pings, count wrong bytes when the reader is done."""
    memory = SharedMemory(name)
    mine = torch.frombuffer(memory.buf, dtype=torch.uint8)[:size]
    write(mine, seed)
    line.send(0)
    while line.recv() == "ping":
        line.send(0)
    line.send(count_wrong(mine, seed, key=KEY))
    del mine
    memory.close()


def _with_owner(memory: SharedMemory, size: int, seed: int) -> dict[str, Scalar]:
    spawn = multiprocessing.get_context("spawn")
    line, far_end = spawn.Pipe()
    owner = spawn.Process(target=own, args=(memory.name, size, seed, far_end), daemon=True)
    owner.start()
    far_end.close()
    try:
        _hear(line)
        return _read_and_modify(memory, size, seed, line)
    finally:
        # An owner that still listens ends with that.
        line.close()
        owner.join(timeout=SECONDS)


def _read_and_modify(
    memory: SharedMemory, size: int, seed: int, line: Connection
) -> dict[str, Scalar]:
    theirs = torch.frombuffer(memory.buf, dtype=torch.uint8)[:size]
    seen = torch.empty_like(theirs)
    start = time.perf_counter()
    seen.copy_(theirs)
    seconds = time.perf_counter() - start
    theirs.bitwise_xor_(KEY)
    del theirs
    latency = _bounce(line)
    line.send("done")
    read, modified = count_wrong(seen, seed), _hear(line)
    if read or modified:
        raise WrongResult(f"of {size} bytes {read} were read wrongly, {modified} modified wrongly")
    return {
        "copy_gb_per_s": round(size / seconds / GB, 4),
        "latency_us": round(latency * 1e6, 2),
    }


def _bounce(line: Connection) -> float:
    """Return the seconds of one way, by messages."""
    start = time.perf_counter()
    for _ in range(ROUNDS):
        line.send("ping")
        _hear(line)
    return (time.perf_counter() - start) / (2 * ROUNDS)


def _hear(line: Connection) -> int:
    """Return what the owner says.

    Raises:
        PeersMissing: it says nothing.
    """
    if not line.poll(SECONDS):
        raise PeersMissing(f"the other process said nothing for {SECONDS} s")
    try:
        return int(line.recv())
    except EOFError as error:
        raise PeersMissing("the other process ended") from error
