# SPDX-License-Identifier: Apache-2.0
"""The same puts and gets by NVSHMEM, if its Python package (nvshmem4py) is installed.

    nvshmem put    put_signal_on_stream to the next rank, signal_wait_until_on_stream for the one
                   before
    nvshmem get    getmem_on_stream from the next rank

Each rank has a process of its own for it, a processing element of NVSHMEM: the library brings its
own memory, its own signals and its own end of a process that fails, and a run without it must not
depend on them. The rank hands it the unique number by which the processes meet, and takes its
times; the checks are made there, byte by byte as in `one_sided`.
"""

import contextlib
import ctypes
import importlib
import importlib.util
import logging
import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from gpupack_workloads.bandwidth import algorithm_gb_per_s
from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.p2p.copies import MISSING
from gpupack_workloads.p2p.pattern import count_wrong, write
from gpupack_workloads.results import Scalar
from gpupack_workloads.timing import seconds_per_call

logger = logging.getLogger(__name__)

Row = dict[str, Scalar]
Seconds = dict[str, dict[int, list[float]]]

PACKAGE = "nvshmem4py-cu13"
WAYS = ("nvshmem put", "nvshmem get")
START_SECONDS = 60
RUN_SECONDS = 100
BATCHES = 5
BATCH_BYTES = 2**31
MAX_REPEATS, MIN_REPEATS, WARM_UP = 40, 3, 2
HEAD_START_MS = 6
HEAP_SLACK = 2**28
LONGEST_REASON = 160
WRONG = "wrong bytes"


class Place(NamedTuple):
    """Settings of a processing element.

    Attributes:
        rank: ours.
        ranks: how many there are.
        device: the GPU's number.
        sizes: in bytes.
        seed: seed of rank 0's bytes; rank r has r more.
    """

    rank: int
    ranks: int
    device: int
    sizes: list[int]
    seed: int


def missing(rank: Rank) -> str | None:
    """Return why NVSHMEM cannot be used, as far as that is known without it."""
    if rank.device.simulated:
        return "NVSHMEM needs GPUs"
    try:
        found = importlib.util.find_spec("nvshmem.core")
    except ImportError:
        found = None
    return None if found else f"there is no Python package nvshmem.core: pip install {PACKAGE}"


def measure(rank: Rank, sizes: list[int], seed: int) -> tuple[list[Row], str]:
    """Return the table, and what became of it: `ok`, or why there is none.

    All ranks must call this together.

    Raises:
        WrongResult: a byte is wrong.
    """
    reason = agreed(missing(rank))
    if reason:
        return [], reason
    place = Place(rank.index, rank.ranks, rank.device.torch.index, sizes, seed)
    with element(place) as line:
        seconds, reason = run_element(line, rank)
    if reason and reason.startswith(WRONG):
        raise WrongResult(reason)
    if reason:
        logger.warning("NVSHMEM: %s", reason)
        return [], reason[:LONGEST_REASON]
    return [
        {
            "part": "nvshmem",
            "way": way,
            "size_bytes": size,
            "us": round(taken * 1e6, 3),
            "gb_per_s": round(algorithm_gb_per_s(size_bytes=size, seconds=taken), 6),
        }
        for size in sizes
        for way in WAYS
        for taken in [slowest(seconds[way][size], rank)]
    ], "ok"


def slowest(own: list[float], rank: Rank) -> float:
    """Return the median over batches of the slowest rank's seconds."""
    from gpupack_workloads.symmetric_memory.one_sided import (  # noqa: PLC0415  imports Triton
        slowest as slowest_of,
    )

    return slowest_of(own, rank)


def agreed(reason: str | None) -> str | None:
    """Return the first_reason reason of all ranks', if any; all ranks must call this together."""
    reasons: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(reasons, reason)
    return first_reason(reasons)


def first_reason(reasons: Sequence[str | None]) -> str | None:
    """Return wrong bytes before anything else, and then the first reason.

    The processes of other ranks wait for the one that found wrong bytes, and say nothing.
    """
    given = [reason for reason in reasons if reason]
    return next((reason for reason in given if reason.startswith(WRONG)), next(iter(given), None))


def run_element(line: Connection, rank: Rank) -> tuple[Seconds, str | None]:
    """Have the process meet the others and measure; return its times, or why there are none."""
    number, reason = receive_reply(line, START_SECONDS)
    reason = agreed(reason)
    if reason:
        return {}, reason
    numbers: list[Any] = [number]
    dist.broadcast_object_list(numbers, src=0)
    with contextlib.suppress(OSError):
        line.send(numbers[0])
    seconds, reason = receive_reply(line, RUN_SECONDS)
    reason = agreed(reason)
    if rank.index == 0:
        logger.info("NVSHMEM: %s", reason or "done")
    return seconds or {}, reason


def receive_reply(line: Connection, seconds: float) -> tuple[Any, str | None]:
    """Return what the process says, or why it does not."""
    try:
        if not line.poll(seconds):
            return None, f"its process said nothing for {seconds} s"
        said, reason = line.recv()
    except (EOFError, OSError):
        return None, "its process ended"
    return said, reason


@contextlib.contextmanager
def element(place: Place) -> Any:
    """Start a processing element; it ends with the context."""
    spawn = multiprocessing.get_context("spawn")
    line, far_end = spawn.Pipe()
    process = spawn.Process(target=serve, args=(place, far_end), name="nvshmem", daemon=True)
    process.start()
    far_end.close()
    try:
        yield line
    finally:
        line.close()
        process.join(timeout=5)
        if process.is_alive():
            process.kill()
            process.join()


def serve(place: Place, line: Connection) -> None:
    """Run a processing element: join the others, measure, check, report."""
    try:
        line.send((begun(place), None))
        number = line.recv()
        line.send((measured(place, number), None))
    except WrongResult as error:
        line.send((None, f"{WRONG}: {error}"))
    except Exception as error:  # noqa: BLE001  whatever it is, the result says why there is none
        with contextlib.suppress(OSError):
            line.send((None, in_a_line(error)))
    # Not the interpreter's end: objects of NVSHMEM that outlive it raise there.
    with contextlib.suppress(EOFError, OSError):
        line.recv()
    os._exit(0)


def in_a_line(error: Exception) -> str:
    """Return kind and first line of an error."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def begun(place: Place) -> bytes:
    """Choose the GPU; return the unique number, of rank 0."""
    heap_bytes = 2 * max(place.sizes) + HEAP_SLACK
    os.environ.setdefault("NVSHMEM_SYMMETRIC_SIZE", str(heap_bytes))
    os.environ.setdefault("NVSHMEM_REMOTE_TRANSPORT", "none")
    torch.cuda.set_device(place.device)
    torch.cuda.synchronize()
    core = importlib.import_module("nvshmem.core")
    number = core.get_unique_id(empty=place.rank != 0)
    return bytes(number._data.tobytes())  # noqa: SLF001  the package's own way to send it


def measured(place: Place, number: bytes) -> Seconds:
    """Join the others, measure and check every size."""
    core = importlib.import_module("nvshmem.core")
    cuda_core = importlib.import_module("cuda.core")
    device_type = getattr(cuda_core, "Device", None)
    if device_type is None:
        device_type = importlib.import_module("cuda.core.experimental").Device
    device = device_type(place.device)
    device.set_current()
    unique = core.get_unique_id(empty=True)
    ctypes.memmove(unique.ptr, number, len(number))
    core.init(
        device=device,
        uid=unique,
        rank=place.rank,
        nranks=place.ranks,
        initializer_method="uid",
    )
    found: Seconds = {way: {} for way in WAYS}
    for size in place.sizes:
        for way, seconds in of_size(core, place, size).items():
            found[way][size] = seconds
    core.finalize()
    return found


class OnStream:
    """Torch's current stream in the form that the package requires."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return version and handle."""
        return 0, int(torch.cuda.current_stream().cuda_stream)


def of_size(core: Any, place: Place, size: int) -> dict[str, list[float]]:
    """Return the seconds per call of every batch, having checked what the last one left."""
    stream = OnStream()
    after, before = (place.rank + 1) % place.ranks, (place.rank - 1) % place.ranks
    outbox, inbox = (core.tensor((size,), dtype=torch.uint8) for _ in range(2))
    word = core.tensor((1,), dtype=torch.int64)
    signal, *_ = core.tensor_get_buffer(word)
    word.zero_()
    write(outbox, place.seed + place.rank)
    calls = 0

    def put() -> None:
        nonlocal calls
        calls += 1
        put_signal = core.put_signal
        put_signal(inbox, outbox, signal, calls, core.SignalOp.SIGNAL_SET, after, stream)
        core.signal_wait(signal, calls, core.ComparisonType.CMP_GE, stream)

    def get() -> None:
        core.get(inbox, outbox, after, stream)

    found: dict[str, list[float]] = {}
    for way, work, source in ((WAYS[0], put, before), (WAYS[1], get, after)):
        found[way] = [batch(core, stream, work, inbox, size) for _ in range(BATCHES)]
        torch.cuda.synchronize()
        if wrong := count_wrong(inbox, place.seed + source):
            raise WrongResult(
                f"rank {place.rank}: {way} of {size} bytes from rank {source}: {wrong} are wrong"
            )
    core.barrier_all(stream)
    torch.cuda.synchronize()
    for tensor in (outbox, inbox, word):
        core.free_tensor(tensor)
    return found


def batch(
    core: Any, stream: OnStream, work: Callable[[], object], inbox: torch.Tensor, size: int
) -> float:
    """Return the seconds of one call."""
    inbox.fill_(MISSING)
    core.barrier_all(stream)
    torch.cuda.synchronize()
    return seconds_per_call(
        work,
        device=inbox.device,
        repeats=max(MIN_REPEATS, min(MAX_REPEATS, BATCH_BYTES // size)),
        warm_up=WARM_UP,
        head_start_ms=HEAD_START_MS,
    )
