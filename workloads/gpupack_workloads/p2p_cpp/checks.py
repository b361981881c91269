# SPDX-License-Identifier: Apache-2.0
"""Checks a copy: every byte of its target, and the margins around it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.p2p.copies import MISSING, Copy
from gpupack_workloads.p2p.pattern import count_wrong, write
from gpupack_workloads.p2p_cpp.plan import WORD_BYTES

# Bytes on both sides of a target that must stay untouched.
MARGIN = 4096
# Less than a vector, one and a byte; less than a block's tile and more; several pieces of the
# host's way with a rest.
RAGGED_BYTES = (1, 15, 17, 255, 16385, 1_000_003)
# Of source and target, in bytes beyond a boundary of vectors: both on one; equally far from one,
# so that vectors have a head; apart by 8, 4 and 2 bytes, and by an odd number.
OFFSETS = ((0, 0), (3, 3), (0, 8), (4, 12), (2, 6), (1, 3), (1, 0))


def nothing() -> None:
    """Do nothing."""


def buffer_bytes(size: int) -> int:
    """Return how large a buffer is for copies of so many bytes, and for ragged ones."""
    return max(size, *RAGGED_BYTES) + 2 * MARGIN + WORD_BYTES


@dataclass(frozen=True)
class CopyBuffers:
    """Source and target of a copy.

    Attributes:
        source: bytes[COUNT].
        around: bytes[MARGIN + COUNT + MARGIN], the target with its margins.
    """

    source: torch.Tensor
    around: torch.Tensor

    @classmethod
    def within(
        cls, out: torch.Tensor, into: torch.Tensor, count: int, offsets: tuple[int, int] = (0, 0)
    ) -> "CopyBuffers":
        """Return source and target in two buffers, so many bytes beyond a boundary."""
        from_offset, to_offset = offsets
        start = MARGIN + from_offset
        return cls(out[start : start + count], into[to_offset : to_offset + count + 2 * MARGIN])

    @property
    def target(self) -> torch.Tensor:
        """Return the bytes that are copied to."""
        return self.around[MARGIN:-MARGIN]

    def fill(self, seed: int) -> None:
        """Write the pattern into the source."""
        write(self.source, seed)

    def spoil(self) -> None:
        """Overwrite target and margins with what is no byte of the pattern."""
        self.around.fill_(MISSING)

    def check(self, seed: int, *, doing: str) -> int:
        """Return how many bytes arrived.

        Raises:
            WrongResult: a byte arrived wrongly, or one around them has changed.
        """
        count: int = self.source.numel()
        wrong = count_wrong(self.target, seed)
        margins = (self.around[:MARGIN], self.around[-MARGIN:])
        around = sum(int((margin != MISSING).sum().item()) for margin in margins)
        if wrong or around:
            raise WrongResult(
                f"{doing}: of {count} bytes {wrong} arrived wrongly, {around} around them changed"
            )
        return count


def check_edges(
    doing: str,
    copy: Copy,
    buffers: tuple[torch.Tensor, torch.Tensor],
    *,
    seed: int,
    settle: Callable[[], object] = nothing,
) -> int:
    """Copy ragged sizes from and to any address; return how many bytes were checked.

    Args:
        doing: names the way, to say where something went wrong.
        copy: copies to a target from a source.
        buffers: to copy from and to, of `buffer_bytes`.
        seed: seed of the pattern.
        settle: waits until everything that has begun is done.

    Raises:
        WrongResult: a byte is wrong.
    """
    checked = 0
    for count in RAGGED_BYTES:
        for offsets in OFFSETS:
            lane = CopyBuffers.within(*buffers, count, offsets)
            lane.fill(seed)
            lane.spoil()
            settle()
            copy(lane.target, lane.source)
            settle()
            where = f"{doing}, from and to {offsets} bytes beyond a boundary"
            checked += lane.check(seed, doing=where)
    return checked
