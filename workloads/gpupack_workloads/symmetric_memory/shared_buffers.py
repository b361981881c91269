# SPDX-License-Identifier: Apache-2.0
"""Memory of the same size on every rank, which all ranks of the host can read and write.

On GPUs it is torch's symmetric memory (`torch.distributed._symmetric_memory`, CUDA's backend: the
ranks map one another's allocations; no multicast). torch has none for CPUs, so that there files in
the memory that processes share stand in for it.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from gpupack_workloads.collectives.methods import world
from gpupack_workloads.distributed.peer_access import can_access_peers
from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import BadArgument, NoSuchDevice, OutOfMemory, WrongResult

SHARED = Path("/dev/shm")  # noqa: S108  the memory that processes share has this name
TOO_LITTLE = (
    "{} bytes of shared memory are needed: set a smaller --size or --rows, or mount an emptyDir"
    " of medium Memory at /dev/shm"
)
SIGNAL_SECONDS = 60
HIGH = -1
Work = Callable[[], object]


@dataclass(frozen=True)
class SharedBuffer:
    """A tensor of the same shape in every rank's memory.

    Attributes:
        parts: by rank; ours is among them.
        signals: sends and awaits signals at this memory.
    """

    parts: list[torch.Tensor]
    signals: "Signals"


class Signals(Protocol):
    """Signals between ranks, in the order of the current stream."""

    def barrier(self) -> None:
        """Wait until all ranks have come here."""

    def put_signal(self, rank: int) -> None:
        """Signal a rank that earlier writes to it have arrived."""

    def wait_signal(self, rank: int) -> None:
        """Wait for a rank's signal."""


class Host(Protocol):
    """The ranks of one host, as one of them sees it."""

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> SharedBuffer:
        """Return zeroed memory; all ranks must call it with the same arguments."""

    def side(self) -> "Side":
        """Return a second queue for copies, next to the current stream."""


class Side(Protocol):
    """A queue of copies that runs concurrently with the current stream."""

    def begin(self) -> None:
        """Let what is put here from now on wait for what the current stream has in its queue."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Work:
        """Copy; return what lets the current stream wait for it."""

    def mark(self, flags: torch.Tensor, place: int) -> None:
        """Set a flag to 1 once what was copied before is there."""

    def end(self) -> None:
        """Let the current stream wait for all of it."""


def host_of(rank: Rank) -> Host:
    """Return the memory of all ranks.

    Raises:
        BadArgument: they are not all of this worker.
        NoSuchDevice: it has one GPU only, or its GPUs do not reach one another.
    """
    local = int(os.environ.get("LOCAL_WORLD_SIZE", rank.ranks))
    if local < rank.ranks:
        raise BadArgument(
            f"symmetric memory is one host's, and {rank.ranks - local} of {rank.ranks} ranks are"
            " other workers': give one worker all GPUs"
        )
    if rank.device.simulated:
        return SharedFiles(rank)
    if rank.ranks == 1:
        raise NoSuchDevice("symmetric-memory needs two GPUs in one container; this one has 1")
    if not can_access_peers(rank):
        raise NoSuchDevice(
            f"the {rank.ranks} GPUs of this container do not all reach one another's memory, or"
            f" the backend is not nccl but {rank.backend}"
        )
    return SymmetricMemory(rank.device.torch)


class SymmetricMemory:
    """Host for GPUs: torch's symmetric memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Kept: torch exchanges an allocation's handles once, so that memory which one rank gets
        # again and another from what was freed would leave them waiting for one another.
        self._kept: list[torch.Tensor] = []

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> SharedBuffer:
        """Allocate, exchange handles, clear."""
        import torch.distributed._symmetric_memory as symmetric  # noqa: PLC0415  only GPUs have it

        mine = symmetric.empty(shape, dtype=dtype, device=self._device)
        self._kept.append(mine)
        handle = symmetric.rendezvous(mine, world())
        mine.zero_()
        torch.cuda.synchronize(self._device)
        dist.barrier()
        parts = [
            mine if rank == handle.rank else handle.get_buffer(rank, shape, dtype)
            for rank in range(handle.world_size)
        ]
        return SharedBuffer(parts, handle)

    def side(self) -> "Side":
        """Return a separate stream."""
        return SideStream(self._device)


class SideStream:
    """Copies by the copy engines, which take no multiprocessor from the product."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device, priority=HIGH)

    def begin(self) -> None:
        """Wait for the current stream."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Work:
        """Copy on the stream."""
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
            event: Any = self._stream.record_event()
        wait: Work = event.wait
        return wait

    def mark(self, flags: torch.Tensor, place: int) -> None:
        """Let the stream itself write the flag: a kernel might find no free multiprocessor."""
        write = torch._C._distributed_c10d._SymmetricMemory.stream_write_value32  # noqa: SLF001
        with torch.cuda.stream(self._stream):
            write(flags.view(torch.uint32), place, 1)

    def end(self) -> None:
        """Make the current stream wait."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)


class SharedFiles:
    """Host for CPUs: a file per rank and buffer, deleted with its last tensor."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> SharedBuffer:
        """Make a file, and map those of all ranks.

        Raises:
            OutOfMemory: there is not as much shared memory.
        """
        size = dtype.itemsize * int(torch.Size(shape).numel())
        with all_or_none():
            require_shared(size * self._rank.ranks)
        names = self._exchanged(size)
        parts = [mapped(name, size).view(dtype).view(shape) for name in names]
        signals = self._exchanged(self._rank.ranks)
        flags = [mapped(name, self._rank.ranks) for name in signals]
        dist.barrier()
        for name in (names[self._rank.index], signals[self._rank.index]):
            Path(name).unlink()
        return SharedBuffer(parts, SharedSignals(flags, self._rank.index))

    def side(self) -> Side:
        """Return a thread's."""
        return SideThread()

    def _exchanged(self, size: int) -> list[str]:
        """Make a file of zeros; return the names of all ranks'."""
        with contextlib.ExitStack() as undo:
            with all_or_none():
                path = made(size)
                undo.callback(path.unlink)
            undo.pop_all()
        names = [""] * self._rank.ranks
        dist.all_gather_object(names, str(path))
        return names


def shared_folder() -> Path:
    """Return where files are that stay in memory, or at least can be shared."""
    return SHARED if os.access(SHARED, os.W_OK) else Path(tempfile.gettempdir())


def made(size: int) -> Path:
    """Make a file of zeros that has its memory; return where.

    Memory that is missing only when it is written would end the process by SIGBUS.

    Raises:
        OutOfMemory: there is not as much.
    """
    handle, name = tempfile.mkstemp(prefix="gpupack-", dir=shared_folder())
    path = Path(name)
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        path.unlink()
        raise OutOfMemory(f"{error.strerror}: {TOO_LITTLE.format(size)}") from error
    finally:
        os.close(handle)
    return path


def mapped(name: str, size: int) -> torch.Tensor:
    """Return a file's bytes, which others see change."""
    return torch.from_file(name, shared=True, size=size, dtype=torch.uint8)


def require_shared(size: int) -> None:
    """Make sure that shared memory is large enough; a container usually has 64 MiB of it.

    Raises:
        OutOfMemory: it has not.
    """
    folder = shared_folder()
    free = shutil.disk_usage(folder).free
    if size > free:
        raise OutOfMemory(f"{folder} has {free} bytes: {TOO_LITTLE.format(size)}")


class SharedSignals:
    """A byte for each rank that signals, as torch's: 0 until it does, and again once it was seen.

    Args:
        flags: by rank, the bytes in its memory.
        rank: ours.
    """

    def __init__(self, flags: list[torch.Tensor], rank: int) -> None:
        self._flags, self._rank = flags, rank

    def barrier(self) -> None:
        """Wait for all."""
        dist.barrier()

    def put_signal(self, rank: int) -> None:
        """Set our byte at a rank, once it has seen the one before."""
        self._await(self._flags[rank], self._rank, 0)
        self._flags[rank][self._rank] = 1

    def wait_signal(self, rank: int) -> None:
        """Wait for a rank's byte here, and clear it."""
        self._await(self._flags[self._rank], rank, 1)
        self._flags[self._rank][rank] = 0

    def _await(self, flags: torch.Tensor, place: int, value: int) -> None:
        deadline = time.monotonic() + SIGNAL_SECONDS
        while flags[place].item() != value:
            if time.monotonic() > deadline:
                raise WrongResult(f"rank {self._rank}: a signal did not come in {SIGNAL_SECONDS} s")
            time.sleep(0)


class SideThread:
    """A queue of copies by a thread that runs between `begin` and `end`."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._marks: list[Future[object]] = []

    def begin(self) -> None:
        """Start the thread."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="side")

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Work:
        """Put a copy in the queue; what is returned waits for it, and raises what it raised."""
        return self._submit(lambda: target.copy_(source)).result

    def mark(self, flags: torch.Tensor, place: int) -> None:
        """Put the writing of a flag in the queue."""
        self._marks.append(self._submit(lambda: flags[place].fill_(1)))

    def end(self) -> None:
        """Wait for the thread; raises what a mark raised."""
        if self._pool is not None:
            self._pool.shutdown()
        marks, self._marks = self._marks, []
        for mark in marks:
            mark.result()

    def _submit(self, work: Work) -> "Future[object]":
        if self._pool is None:
            raise RuntimeError("the side thread has not begun")
        return self._pool.submit(work)
