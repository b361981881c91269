# SPDX-License-Identifier: Apache-2.0
"""Writes patterns over most of a GPU's memory, reads them back and compares, all on the device.

A pattern is written everywhere before any of it is read: a write that lands in the wrong place is
seen only so. Comparing costs one block of scratch memory, whatever the size of what is tested.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

import torch

from gpupack_workloads.burn_in.checks import MemoryReport
from gpupack_workloads.burn_in.patterns import Pattern

logger = logging.getLogger(__name__)

WORD_BYTES = 8
LARGEST_BLOCK_BYTES = 2**26
"""Large enough that launches do not count, small enough to locate a fault soon."""
LARGEST_CHUNK_BLOCKS = 64
SHOWN = 4
"""How many changed words a finding describes."""

Touch = Callable[[Sequence[torch.Tensor]], None]


class Memory:
    """A large part of a device's memory, held until this is deleted.

    Args:
        device: owner of the memory.
        tested_bytes: how much; rounded down to blocks, at least one.
        block_bytes: how much is written and compared at once.
        touch: is shown the blocks after each writing; for tests, which change a bit there.
    """

    def __init__(
        self, device: torch.device, *, tested_bytes: int, block_bytes: int, touch: Touch
    ) -> None:
        words = block_bytes // WORD_BYTES
        self._blocks = list(_blocks(device, max(1, tested_bytes // block_bytes), words))
        self._scratch = torch.empty(words, dtype=torch.int64, device=device)
        self._touch = touch
        self._wrong = 0
        self._passes = 0
        self._detail: list[str] = []

    @property
    def tested_bytes(self) -> int:
        """How much is written and read back."""
        return len(self._blocks) * int(self._scratch.numel()) * WORD_BYTES

    def write(self, pattern: Pattern) -> None:
        """Write a pattern everywhere."""
        for first, block in self._places():
            pattern.fill(block, first)
        self._touch(self._blocks)

    def compare(self, pattern: Pattern) -> None:
        """Read everything back and count the words that are not the pattern's."""
        wrong = torch.zeros((), dtype=torch.int64, device=self._scratch.device)
        for first, block in self._places():
            pattern.fill(self._scratch, first)
            wrong += torch.count_nonzero(block != self._scratch)
        self._passes += 1
        if count := int(wrong.item()):
            self._wrong += count
            self._describe(pattern, count)

    def report(self) -> MemoryReport:
        """Return what came back so far."""
        return MemoryReport(
            tested_bytes=self.tested_bytes,
            passes=self._passes,
            wrong_words=self._wrong,
            detail="; ".join(self._detail),
        )

    def _places(self) -> Iterator[tuple[int, torch.Tensor]]:
        words = self._scratch.numel()
        for number, block in enumerate(self._blocks):
            yield number * words, block

    def _describe(self, pattern: Pattern, count: int) -> None:
        """Read again and describe the first changed words; a read fault may have gone by now."""
        logger.error("%s: %d words came back changed", pattern.name, count)
        seen = len(self._detail)
        for first, block in self._places():
            if len(self._detail) >= SHOWN:
                return
            pattern.fill(self._scratch, first)
            places = (block != self._scratch).nonzero()[:SHOWN, 0].tolist()
            for place in places[: SHOWN - len(self._detail)]:
                wanted, found = int(self._scratch[place]), int(block[place])
                self._detail.append(_changed_word(pattern, first + place, wanted, found))
        if len(self._detail) == seen:
            self._detail.append(f"{pattern.name}: {count} words, right when read again")


def _blocks(device: torch.device, count: int, words: int) -> Iterator[torch.Tensor]:
    """Allocate in chunks of many blocks: few allocations, none of which needs a huge gap."""
    while count > 0:
        taken = min(count, LARGEST_CHUNK_BLOCKS)
        chunk = torch.empty((taken, words), dtype=torch.int64, device=device)
        yield from chunk
        count -= taken


def _changed_word(pattern: Pattern, place: int, wanted: int, found: int) -> str:
    mask = 2**64 - 1
    bits = (wanted ^ found) & mask
    flipped = [bit for bit in range(bits.bit_length()) if bits >> bit & 1]
    which = f"bit {flipped[0]}" if len(flipped) == 1 else f"{len(flipped)} bits"
    return (
        f"{pattern.name}: byte {place * WORD_BYTES:#x} of what was tested is {found & mask:#018x}"
        f" instead of {wanted & mask:#018x}, {which} flipped"
    )
