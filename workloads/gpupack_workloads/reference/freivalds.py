# SPDX-License-Identifier: Apache-2.0
"""Checks C = A B by checksums, after Freivalds: C x = A (B x) for vectors x of random signs.

A vector of signs for each strip of 32 columns gives one checksum per row and strip: every element
of C is in one, and one wrong element among 32 stands out of their rounding. The other side is
computed in 64 bits, by another path of the hardware, at the cost of a few vectors.

Bound of a strip's checksum: each element's rounding to the result's type, at most v |c| each, and
the accumulation's in 32 bits, L sqrt(32 K) u |a| |b| with row norms (reference/gemm has L
and why). Where partial sums were rounded on their way, each adds a rounding of its own size, about
|a| |b| / sqrt(K).
"""

import math
from dataclasses import dataclass

import torch

from gpupack_workloads.reference.agreement import (
    ACCUMULATION_UNIT,
    RESULT_UNITS,
    SAFETY,
    Agreement,
    furthest,
)

STRIP = 32
ROWS_AT_ONCE = 1024
"""Rows that are turned to 64 bits at a time: whole matrices would take too much memory."""


@dataclass(frozen=True)
class Strips:
    """The vectors x, one for each strip of columns.

    Attributes:
        signs: +1 or -1 for each column, in 64 bits.
        width: columns of a strip.
    """

    signs: torch.Tensor
    width: int

    def of(self, columns: slice) -> "Strips":
        """Return the strips of some columns, which begin and end where strips do."""
        return Strips(self.signs[columns], self.width)


@dataclass(frozen=True)
class Checksums:
    """Checksums that a product must have.

    Attributes:
        exact: A (B x), by row and strip, in 64 bits.
        norms: norms of A's rows times the largest of B's columns in the strip.
        terms: K, of the sum that each element is.
    """

    exact: torch.Tensor
    norms: torch.Tensor
    terms: int


def strip_width(columns: int) -> int:
    """Return how many columns have a checksum together: as many divide the columns."""
    return math.gcd(STRIP, columns)


def random_signs(count: int, chance: torch.Generator) -> torch.Tensor:
    """Return so many times +1 or -1, in 64 bits."""
    coins = torch.randint(0, 2, (count,), generator=chance, device=chance.device)
    return (2 * coins - 1).double()


def checksums_of(matrix: torch.Tensor, strips: Strips) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a matrix's checksums, and the sums of its absolute values, by row and strip."""
    found, magnitude = [], []
    for rows in matrix.split(ROWS_AT_ONCE):
        signed = (rows.double() * strips.signs).view(rows.shape[0], -1, strips.width)
        found.append(signed.sum(2))
        magnitude.append(signed.abs().sum(2))
    return torch.cat(found), torch.cat(magnitude)


def checksums_of_product(a: torch.Tensor, b: torch.Tensor, strips: Strips) -> Checksums:
    """Return the checksums that A B must have, of matrices that are at hand."""
    b_x, _ = checksums_of(b, strips)
    exact = torch.cat([rows.double() @ b_x for rows in a.split(ROWS_AT_ONCE)])
    norm_a, norm_b = (
        torch.linalg.vector_norm(matrix, dim=along, dtype=torch.float32).double()
        for matrix, along in ((a, 1), (b, 0))
    )
    largest_b = norm_b.view(-1, strips.width).amax(1)
    return Checksums(exact, norm_a[:, None] * largest_b, terms=a.shape[1])


def compare(
    c: torch.Tensor, expected: Checksums, strips: Strips, *, roundings: int = 1
) -> Agreement:
    """Return the checksum that comes closest to what rounding explains, or exceeds it most.

    Args:
        c: the product.
        expected: what its checksums must be.
        strips: by which these were made.
        roundings: how often an element was rounded to its type, of partial sums too; 0: all sums
            are exact, and so must be the product.
    """
    found, magnitude = checksums_of(c, strips)
    error = (found - expected.exact).abs()
    if not roundings:
        return furthest(error=error, bound=torch.zeros_like(error))
    unit = RESULT_UNITS[str(c.dtype).removeprefix("torch.")]
    chance = SAFETY * math.sqrt(strips.width) * expected.norms
    bound = unit * magnitude + chance * math.sqrt(expected.terms) * ACCUMULATION_UNIT
    bound += chance * unit * math.sqrt((roundings - 1) / expected.terms)
    return furthest(error=error, bound=bound)
