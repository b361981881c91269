# SPDX-License-Identifier: Apache-2.0
"""Two GPUs, or one with itself, with their streams, buffers and kernels."""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass

import torch

from gpupack_workloads.p2p_cpp.access import both_can_access, peer_access
from gpupack_workloads.p2p_cpp.checks import buffer_bytes
from gpupack_workloads.p2p_cpp.kernels import PeerKernels
from gpupack_workloads.p2p_cpp.runtime import Clock, Memory, Stream

# Of the small memory in which single accesses are timed: 32-bit words, each use on a line of its
# own.
FLAG, DONE, RING = 0, 32, 64
RING_WORDS = 32
FLAGS_BYTES = 4 * (RING + RING_WORDS)


@dataclass(frozen=True)
class Side:
    """One of two GPUs; where both are the same one, each has its own of everything else.

    Attributes:
        device: its number.
        stream: stream of its work.
        clock: clock of that stream.
        kernels: on this GPU.
        out: bytes that are copied from.
        into: bytes that are copied to.
        flags: 32-bit words in which single accesses are timed.
    """

    device: int
    stream: Stream
    clock: Clock
    kernels: PeerKernels
    out: torch.Tensor
    into: torch.Tensor
    flags: torch.Tensor

    def word(self, place: int) -> torch.Tensor:
        """Return one of the flags, as words[1]."""
        return self.flags[place : place + 1]

    def address(self, place: int) -> int:
        """Return where one of the flags is."""
        address: int = self.word(place).data_ptr()
        return address


@dataclass(frozen=True)
class Pair:
    """Bytes go from the source to the target.

    Attributes:
        source: side whose memory has the bytes.
        target: side whose memory gets them.
        direct: whether each has access to the other's memory.
    """

    source: Side
    target: Side
    direct: bool

    def __str__(self) -> str:
        """Return both names for error messages."""
        return f"GPU {self.source.device} to GPU {self.target.device}"

    @property
    def same(self) -> bool:
        """Whether it is one GPU."""
        return self.source.device == self.target.device

    def settle(self) -> None:
        """Wait for both streams, then for what torch does on both GPUs.

        Raises:
            Refused: something has failed.
        """
        for side in (self.source, self.target):
            side.stream.synchronize()
        for side in (self.source, self.target):
            torch.cuda.synchronize(side.device)


@contextlib.contextmanager
def open_pair(
    source: int, target: int, *, kernels: Mapping[int, PeerKernels], size: int
) -> Iterator[Pair]:
    """Give two GPUs access to each other, if that can be, and what they need to copy.

    Args:
        source: its number.
        target: its number.
        kernels: by GPU.
        size: bytes of the largest copy.

    Raises:
        OutOfMemory: the buffers do not fit.
        Refused: access cannot be enabled, though the driver says that it can be.
    """
    with ExitStack() as stack:
        direct = both_can_access(source, target)
        if direct:
            stack.enter_context(peer_access(source, target))
        one, other = (
            _open_side(stack, device, kernels[device], size) for device in (source, target)
        )
        yield Pair(one, other, direct)


def _open_side(stack: ExitStack, device: int, kernels: PeerKernels, size: int) -> Side:
    stream = stack.enter_context(closing(Stream(device)))
    clock = stack.enter_context(closing(Clock(stream)))
    out, into, flags = (
        stack.enter_context(closing(Memory(device, wanted))).tensor()
        for wanted in (buffer_bytes(size), buffer_bytes(size), FLAGS_BYTES)
    )
    return Side(device, stream, clock, kernels, out, into, flags.view(torch.int32))
