# SPDX-License-Identifier: Apache-2.0
"""Devices, streams, events and memory of CUDA's runtime, as cudaMalloc and its like give them.

By NVIDIA's binding, not by torch: of torch's memory an allocator decides who may reach it, and
torch enables peer access by itself and never disables it.

What is closed gives its resource back. That never fails: after a fault nothing can be given back,
and the fault is what the user has to hear of.
"""

import contextlib
import ctypes
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gpupack_workloads.cuda_api import Refused, check_status, load
from gpupack_workloads.errors import OutOfMemory

logger = logging.getLogger(__name__)

NO_MEMORY = "cudaErrorMemoryAllocation"
# No byte of the pattern.
SPOILT = 0xFF


@contextlib.contextmanager
def current(device: int) -> Iterator[None]:
    """Make a device the current one of torch's runtime, and of the binding's, which is another."""
    with torch.cuda.device(device):
        check_status(load("runtime").cudaSetDevice(device))
        yield


def clean_up(give_back: Callable[[], object]) -> None:
    """Give something back; what fails is logged."""
    try:
        give_back()
    except (Refused, RuntimeError) as error:
        logger.warning("not given back: %s", error)


class Stream:
    """A CUDA stream: work in its order on a device, concurrent with other streams.

    Args:
        device: its number.
    """

    def __init__(self, device: int) -> None:
        self._runtime = load("runtime")
        self.device = device
        with current(device):
            flags = self._runtime.cudaStreamNonBlocking
            self.handle: Any = check_status(self._runtime.cudaStreamCreateWithFlags(flags))
        self.torch = torch.cuda.ExternalStream(int(self.handle), device=device)

    def wait(self, event: "Event") -> None:
        """Let what follows wait for an event as it was recorded last, of any device."""
        check_status(self._runtime.cudaStreamWaitEvent(self.handle, event.handle, 0))

    def synchronize(self) -> None:
        """Wait for everything.

        Raises:
            Refused: something has failed.
        """
        check_status(self._runtime.cudaStreamSynchronize(self.handle))

    def close(self) -> None:
        """Give it back."""
        clean_up(lambda: check_status(self._runtime.cudaStreamDestroy(self.handle)))


class Event:
    """A point in the work of a device's streams.

    Args:
        device: its number.
        timing: whether it keeps the time, which costs some.
    """

    def __init__(self, device: int, *, timing: bool = False) -> None:
        self._runtime = load("runtime")
        flags = self._runtime.cudaEventDefault if timing else self._runtime.cudaEventDisableTiming
        with current(device):
            self.handle: Any = check_status(self._runtime.cudaEventCreateWithFlags(flags))

    def record(self, stream: Stream) -> None:
        """Put it behind what the stream has; of the same device."""
        check_status(self._runtime.cudaEventRecord(self.handle, stream.handle))

    def seconds_since(self, start: "Event") -> float:
        """Wait for it, and return the time since another one of the same device.

        Raises:
            Refused: something before it has failed.
        """
        check_status(self._runtime.cudaEventSynchronize(self.handle))
        milliseconds = check_status(self._runtime.cudaEventElapsedTime(start.handle, self.handle))
        return float(milliseconds) / 1000

    def close(self) -> None:
        """Give it back."""
        clean_up(lambda: check_status(self._runtime.cudaEventDestroy(self.handle)))


class Clock:
    """Measures the time of a stream's work between two points.

    Args:
        stream: that is timed.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._first, self._last = (Event(stream.device, timing=True) for _ in range(2))

    def start(self) -> None:
        """Begin: what the stream gets from now on counts."""
        self._first.record(self._stream)

    def stop(self) -> float:
        """Wait for what the stream has got; return its seconds.

        Raises:
            Refused: something has failed.
        """
        self._last.record(self._stream)
        return self._last.seconds_since(self._first)

    def close(self) -> None:
        """Give both points back."""
        self._first.close()
        self._last.close()


class Memory:
    """Memory of a device, by cudaMalloc.

    Args:
        device: its number.
        size: in bytes.

    Raises:
        OutOfMemory: there is not as much.
    """

    def __init__(self, device: int, size: int) -> None:
        self._runtime = load("runtime")
        with current(device), _out_of_memory(f"{size} bytes on GPU {device}"):
            self.address = int(check_status(self._runtime.cudaMalloc(size)))
        self._device = device
        self._size = size

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Tell torch where it is."""
        return {
            "version": 3,
            "typestr": "|u1",
            "shape": (self._size,),
            "data": (self.address, False),
            "strides": None,
        }

    def tensor(self) -> torch.Tensor:
        """Return the same memory as bytes[SIZE] for torch; not to be used once it is closed."""
        return torch.as_tensor(self, device=torch.device("cuda", self._device))

    def close(self) -> None:
        """Give it back."""
        clean_up(lambda: check_status(self._runtime.cudaFree(self.address)))


class Pinned:
    """Memory of the host that every device can copy from and to, by cudaHostAlloc.

    Args:
        size: in bytes.

    Raises:
        OutOfMemory: there is not as much.
    """

    def __init__(self, size: int) -> None:
        self._runtime = load("runtime")
        with _out_of_memory(f"{size} bytes of pinned host memory"):
            flags = self._runtime.cudaHostAllocPortable
            self.address = int(check_status(self._runtime.cudaHostAlloc(size, flags)))
        self._size = size

    def spoil(self) -> None:
        """Overwrite it, so that what an earlier copy left does not pass for a later one's."""
        ctypes.memset(self.address, SPOILT, self._size)

    def close(self) -> None:
        """Give it back."""
        clean_up(lambda: check_status(self._runtime.cudaFreeHost(self.address)))


def copy_to_host(target: int, source: int, count: int, stream: Stream) -> None:
    """Begin to copy from a device to pinned memory; addresses and bytes."""
    runtime = load("runtime")
    kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
    check_status(runtime.cudaMemcpyAsync(target, source, count, kind, stream.handle))


def copy_from_host(target: int, source: int, count: int, stream: Stream) -> None:
    """Begin to copy from pinned memory to a device; addresses and bytes."""
    runtime = load("runtime")
    kind = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
    check_status(runtime.cudaMemcpyAsync(target, source, count, kind, stream.handle))


def copy_to_peer(
    target: int, target_device: int, source: int, source_device: int, *, count: int, stream: Stream
) -> None:
    """Begin to copy from a device to another, or within one; addresses and bytes.

    Without peer access the driver itself takes the way through the host.
    """
    check_status(
        load("runtime").cudaMemcpyPeerAsync(
            target, target_device, source, source_device, count, stream.handle
        )
    )


@contextlib.contextmanager
def _out_of_memory(what: str) -> Iterator[None]:
    try:
        yield
    except Refused as error:
        if error.status != NO_MEMORY:
            raise
        raise OutOfMemory(f"there is no memory for {what}: set a smaller --size") from error
