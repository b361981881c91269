# SPDX-License-Identifier: Apache-2.0
"""Which rank this is, and its data.

Data are small whole numbers, so that every order of summation gives the same float: a result is
right or wrong, and no tolerance hides an error. Position i of rank r holds
(i + 31 r + seed) mod 61; sums stay below 2^24, up to which a 32-bit float counts exactly, for
270000 ranks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

ELEMENT_BYTES = 4
MODULUS = 61
RANK_STEP = 31
# Neither a term nor a sum: stands where nothing has arrived yet.
MISSING = -1.0
# Filling and checking take pieces of 256 MiB, so that they need little beside the buffers.
PIECE = 2**26

# Values at positions [first, first + count).
Values = Callable[[int, int], torch.Tensor]


@dataclass(frozen=True)
class RankData:
    """This rank among all.

    Attributes:
        rank: ours, from 0.
        ranks: how many there are.
        device: where the buffers are.
        seed: of the data.
    """

    rank: int
    ranks: int
    device: torch.device
    seed: int

    def zeros(self, elements: int) -> torch.Tensor:
        """Return a buffer of zeros."""
        return torch.zeros(elements, device=self.device)

    def term(self, rank: int, first: int, count: int) -> torch.Tensor:
        """Return what a rank's data are at positions [first, first + count)."""
        start = (first + RANK_STEP * rank + self.seed) % MODULUS
        positions = torch.arange(start, start + count, device=self.device, dtype=torch.int32)
        return (positions % MODULUS).float()

    def data(self, rank: int, start: int = 0) -> Values:
        """Return a rank's data, from a position on."""
        return lambda first, count: self.term(rank, start + first, count)

    def sum(self, first: int, count: int) -> torch.Tensor:
        """Return the sum of all ranks' data at these positions."""
        total = torch.zeros(count, device=self.device)
        for rank in range(self.ranks):
            total += self.term(rank, first, count)
        return total


def pieces(elements: int) -> Iterator[tuple[int, int]]:
    """Cut a buffer: first position and count of each piece."""
    for first in range(0, elements, PIECE):
        yield first, min(PIECE, elements - first)


def fill(buffer: torch.Tensor, values: Values) -> None:
    """Write values to a buffer."""
    for first, count in pieces(buffer.numel()):
        buffer[first : first + count] = values(first, count)


def count_wrong(buffer: torch.Tensor, values: Values) -> int:
    """Return how many elements differ from what they must be."""
    wrong = 0
    for first, count in pieces(buffer.numel()):
        wrong += int((buffer[first : first + count] != values(first, count)).sum().item())
    return wrong
