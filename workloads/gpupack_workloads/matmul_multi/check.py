# SPDX-License-Identifier: Apache-2.0
"""Checksums after Freivalds: C x = A (B x) for vectors x of random signs.

A vector of signs for each strip of 32 columns gives one checksum per row and strip: every element
of C is in one, and one wrong element among 32 stands out of their rounding. The other side is
computed in 64 bits from operands that are made anew, so that a block which travelled badly is
noticed.

Bound of a strip's checksum: each element's rounding to the result's type, at most v |c| each, and
the accumulation's in 32 bits, L sqrt(32 K) u |a| |b| with row norms (kernels/gemm/reference has L
and why). Where partial sums were rounded on their way, each adds a rounding of its own size, about
|a| |b| / sqrt(K).
"""

import math
from dataclasses import dataclass

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.kernels.agreement import (
    ACCUMULATION_UNIT,
    RESULT_UNITS,
    SAFETY,
    Agreement,
)
from gpupack_workloads.kernels.furthest import furthest
from gpupack_workloads.matmul_multi.layout import Block
from gpupack_workloads.matmul_multi.operands import B_T, A, Operands

STRIP = 32
ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Sums:
    """Checksums that a block must have.

    Attributes:
        exact: row and strip.
        norms: of A's rows times the largest of B's columns in the strip.
    """

    exact: torch.Tensor
    norms: torch.Tensor


def check(block: Block, operands: Operands, *, doing: str) -> Agreement:
    """Compare a block's checksums with what they must be.

    Raises:
        WrongResult: one differs by more than rounding explains.
    """
    width = strip_width(operands)
    signs = signs_of(operands)
    sums = expected(block, operands, signs, width)
    own = signs[block.columns.start * operands.edge :][: block.values.shape[1]]
    found, magnitude = strips_of(block.values, own, width)
    unit = RESULT_UNITS[str(operands.dtype).removeprefix("torch.")]
    chance = SAFETY * math.sqrt(width) * sums.norms
    bound = unit * magnitude + chance * math.sqrt(operands.size) * ACCUMULATION_UNIT
    bound += chance * unit * math.sqrt((block.roundings - 1) / operands.size)
    agreement = furthest(error=(found - sums.exact).abs(), bound=bound)
    if not agreement.holds:
        raise WrongResult(
            f"{doing}: a checksum of {width} elements is wrong by {agreement.error:.3e}"
            f" where rounding explains {agreement.bound:.3e}"
        )
    return agreement


def strip_width(operands: Operands) -> int:
    """Return how many columns have a checksum together: as many divide a tile."""
    return math.gcd(STRIP, operands.edge)


def signs_of(operands: Operands) -> torch.Tensor:
    """Return a sign for each column of C."""
    chance = torch.Generator(operands.device).manual_seed(operands.seed)
    coins = torch.randint(0, 2, (operands.size,), generator=chance, device=operands.device)
    return (2 * coins - 1).double()


def expected(block: Block, operands: Operands, signs: torch.Tensor, width: int) -> Sums:
    """Compute A (B x) tile by tile in 64 bits."""
    height, strips = block.values.shape[0], block.values.shape[1] // width
    like = {"dtype": torch.float64, "device": operands.device}
    exact, squares_a = torch.zeros((height, strips), **like), torch.zeros(height, **like)
    squares_b = torch.zeros(strips * width, **like)
    own = signs[block.columns.start * operands.edge :][: block.values.shape[1]]
    for k in range(operands.ranks):
        b_nk = operands.block(B_T, block.columns, range(k, k + 1)).double()
        squares_b += b_nk.square().sum(1)
        combined_sk = (b_nk * own[:, None]).view(strips, width, -1).sum(1)
        a_mk = operands.block(A, block.rows, range(k, k + 1)).double()
        squares_a += a_mk.square().sum(1)
        exact += a_mk @ combined_sk.T
    largest_b = squares_b.view(strips, width).amax(1).sqrt()
    return Sums(exact, squares_a.sqrt()[:, None] * largest_b)


def strips_of(
    c_mn: torch.Tensor, signs: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a block's checksums, and the sums of its absolute values, by row and strip."""
    found, magnitude = [], []
    for rows in c_mn.split(ROWS_AT_ONCE):
        strips = (rows.double() * signs).view(rows.shape[0], -1, width)
        found.append(strips.sum(2))
        magnitude.append(strips.abs().sum(2))
    return torch.cat(found), torch.cat(magnitude)
