# SPDX-License-Identifier: Apache-2.0
"""Checks blocks of C by checksums (reference/freivalds).

The expected values are computed from operands that are made again, so that a block which travelled
badly is noticed.
"""

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.matmul_multi.layout import Block
from gpupack_workloads.matmul_multi.operands import B_T, A, Operands
from gpupack_workloads.reference import freivalds
from gpupack_workloads.reference.agreement import Agreement
from gpupack_workloads.reference.freivalds import Checksums, Strips


def check(block: Block, operands: Operands, *, doing: str) -> Agreement:
    """Compare a block's checksums with what they must be.

    Raises:
        WrongResult: one differs by more than rounding explains.
    """
    start = block.columns.start * operands.edge
    strips = strips_of(operands).of(slice(start, start + block.values.shape[1]))
    sums = expected(block, operands, strips)
    agreement = freivalds.compare(block.values, sums, strips, roundings=block.roundings)
    if not agreement.holds:
        raise WrongResult(
            f"{doing}: a checksum of {strips.width} elements is wrong by {agreement.error:.3e}"
            f" where rounding explains {agreement.bound:.3e}"
        )
    return agreement


def strips_of(operands: Operands) -> Strips:
    """Return signs for all columns of C; a strip is within one tile."""
    chance = torch.Generator(operands.device).manual_seed(operands.seed)
    signs = freivalds.random_signs(operands.size, chance)
    return Strips(signs, freivalds.strip_width(operands.edge))


def expected(block: Block, operands: Operands, strips: Strips) -> Checksums:
    """Compute A (B x) tile by tile in 64 bits."""
    height, count = block.values.shape[0], block.values.shape[1] // strips.width
    like = {"dtype": torch.float64, "device": operands.device}
    exact, squares_a = torch.zeros((height, count), **like), torch.zeros(height, **like)
    squares_b = torch.zeros(count * strips.width, **like)
    for k in range(operands.ranks):
        b_nk = operands.block(B_T, block.columns, range(k, k + 1)).double()
        squares_b += b_nk.square().sum(1)
        combined_sk = (b_nk * strips.signs[:, None]).view(count, strips.width, -1).sum(1)
        a_mk = operands.block(A, block.rows, range(k, k + 1)).double()
        squares_a += a_mk.square().sum(1)
        exact += a_mk @ combined_sk.T
    largest_b = squares_b.view(count, strips.width).amax(1).sqrt()
    return Checksums(exact, squares_a.sqrt()[:, None] * largest_b, terms=operands.size)
