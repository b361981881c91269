# SPDX-License-Identifier: Apache-2.0
"""Data of each rank, and the result of their reduction.

Data are small whole numbers, so that every order of summation gives the same number in every type:
a result is right or wrong, and no tolerance hides an error. Position i of rank r holds
(i + 31 r + seed) mod m. The modulus m is the largest prime up to 61 with which the sum over all
ranks is one that the type holds exactly, 2^24 in a float32 and 256 in a bfloat16. A product is of
ones and twos, and so a power of two, or zero where an integer has wrapped.

One reduction rounds: NCCL's mean of floats, which divides each term by the ranks before it adds
them. There each of the additions and the division may be wrong by half a unit in the last place.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from gpupack_workloads.errors import BadArgument

ELEMENT_BYTES = 4
RANK_STEP = 31
# Not among them: RANK_STEP itself, with which all ranks would have the same.
MODULI = (61, 59, 53, 47, 43, 41, 37, 29, 23, 19, 17, 13, 11, 7, 5, 3, 2)
# Neither a term nor the result of a reduction: the content where nothing has arrived yet.
MISSING = -1
# Up to which a type counts exactly, and without MISSING (255 as an unsigned byte).
LARGEST = {
    torch.float64: 2**53,
    torch.float32: 2**24,
    torch.float16: 2**11,
    torch.bfloat16: 2**8,
    torch.int64: 2**63 - 1,
    torch.int32: 2**31 - 1,
    torch.int8: 2**7 - 1,
    torch.uint8: 2**8 - 2,
}
# Filling and checking take pieces of 256 MiB, so that they need little more than the buffers.
PIECE = 2**26

# How two ranks' whole numbers become one; a product's are exponents of two.
COMBINE = {
    "sum": torch.add,
    "prod": torch.add,
    "min": torch.minimum,
    "max": torch.maximum,
    "avg": torch.add,
}

# Values at positions [first, first + count).
Values = Callable[[int, int], torch.Tensor]


@dataclass(frozen=True)
class RankData:
    """This rank and its data.

    Attributes:
        rank: ours, from 0.
        ranks: how many there are.
        device: where the buffers are.
        seed: seed of the data.
        dtype: type of the elements.
        reduce_op: what reductions do: sum, prod, min, max or avg.
    """

    rank: int
    ranks: int
    device: torch.device
    seed: int
    dtype: torch.dtype = torch.float32
    reduce_op: str = "sum"

    @cached_property
    def modulus(self) -> int:
        """What positions are counted by.

        Raises:
            BadArgument: no sum over so many ranks is exact in this type.
        """
        for modulus in MODULI:
            if (modulus - 1) * self.ranks <= LARGEST[self.dtype]:
                return modulus
        raise BadArgument(
            f"{self.dtype} counts exactly to {LARGEST[self.dtype]}: sums over {self.ranks} ranks"
            " cannot be checked; choose another --dtype"
        )

    @property
    def tolerance(self) -> float:
        """By how much of itself a reduced element may be wrong."""
        if self.reduce_op == "avg" and self.dtype.is_floating_point:
            return float((self.ranks + 1) * torch.finfo(self.dtype).eps)
        return 0.0

    def zeros(self, elements: int) -> torch.Tensor:
        """Return a buffer of zeros."""
        return torch.zeros(elements, device=self.device, dtype=self.dtype)

    def data(self, rank: int, start: int = 0) -> Values:
        """Return a rank's data, from a position on."""
        return lambda first, count: self.term(rank, start + first, count)

    def term(self, rank: int, first: int, count: int) -> torch.Tensor:
        """Return what a rank's data are at positions [first, first + count)."""
        whole = self._whole(rank, first, count)
        return (1 + whole % 2 if self.reduce_op == "prod" else whole).to(self.dtype)

    def reduced(self, first: int, count: int) -> torch.Tensor:
        """Return what all ranks' data give at these positions; a mean of floats in 64 bits."""
        total = self._reduced_term(0, first, count)
        for rank in range(1, self.ranks):
            total = COMBINE[self.reduce_op](total, self._reduced_term(rank, first, count))
        if self.reduce_op == "prod":
            return self._power_of_two(total)
        if self.reduce_op == "avg":
            floating = self.dtype.is_floating_point
            return total.double() / self.ranks if floating else (total // self.ranks).to(self.dtype)
        return total.to(self.dtype)

    def _reduced_term(self, rank: int, first: int, count: int) -> torch.Tensor:
        """Return a rank's whole numbers; of a product, how often two is a factor."""
        whole = self._whole(rank, first, count)
        return whole % 2 if self.reduce_op == "prod" else whole

    def _whole(self, rank: int, first: int, count: int) -> torch.Tensor:
        start = (first + RANK_STEP * rank + self.seed) % self.modulus
        positions = torch.arange(start, start + count, device=self.device, dtype=torch.int32)
        return positions % self.modulus

    def _power_of_two(self, exponents: torch.Tensor) -> torch.Tensor:
        if self.dtype.is_floating_point:
            ones = torch.ones_like(exponents, dtype=torch.float64)
            return torch.ldexp(ones, exponents).to(self.dtype)
        bits = 8 * self.dtype.itemsize
        kept = 1 << exponents.long().clamp(max=bits - 1)
        return torch.where(exponents < bits, kept, 0).to(self.dtype)


def pieces(elements: int) -> Iterator[tuple[int, int]]:
    """Cut a buffer: first position and count of each piece."""
    for first in range(0, elements, PIECE):
        yield first, min(PIECE, elements - first)


def fill(buffer: torch.Tensor, values: Values) -> None:
    """Write values to a buffer."""
    for first, count in pieces(buffer.numel()):
        buffer[first : first + count] = values(first, count)


def count_wrong(buffer: torch.Tensor, values: Values, *, tolerance: float = 0.0) -> int:
    """Return how many elements differ from what they must be, by more than a share of it."""
    wrong = 0
    for first, count in pieces(buffer.numel()):
        found, wanted = buffer[first : first + count], values(first, count)
        if tolerance:
            # What is no number is wrong, too.
            right = (found.double() - wanted).abs() <= tolerance * wanted.abs()
        else:
            right = found == wanted
        wrong += count - int(right.sum().item())
    return wrong
