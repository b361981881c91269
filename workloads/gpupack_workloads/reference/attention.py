# SPDX-License-Identifier: Apache-2.0
"""Textbook attention and its gradient in 64 bits, with error bounds.

Half-precision kernels round the weights P before the product with V, and dS before those with K and
Q: independent errors of at most unit(type) of each term, which add up like a random walk, so a sum
of terms t is wrong by at most SAFETY unit sqrt(sum t^2) (Higham and Mary, 2019). The certain bound,
unit sum |t|, is so wide at 16k keys that a skipped tile of 128 keys would pass. The gradient also
subtracts each row's sum of O dO, computed from the rounded O: an error common to a row.

Everything in 32 bits (scores, exponentials, row sums, accumulation) may be wrong by `fine` times
the sum of the terms' absolute values; `fine` grows with the score's size, because an error of a
score is a relative error of its weight. Small weights and dS are rounded to subnormal numbers, by
half their spacing at most. The result is rounded once more.

Projected, an element is not one of a result X but one of X R, for a matrix R of random signs with a
few columns, which checks all of X for a fraction of the work (Freivalds): every formula holds with
V R in the place of V as the right operand of a product, and so on. What rounding each element once
more adds up to is again a random walk.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from gpupack_workloads.reference.agreement import (
    ACCUMULATION_UNIT,
    RESULT_UNITS,
    SAFETY,
    SUBNORMAL_UNITS,
    Agreement,
    furthest,
)

CHUNK_ROWS = 2048
# Below 2^-126 the GPU's exponential gives zero; what such a weight would have been multiplied with
# is smaller than 2^16.
FLUSHED = 2.0**-110


@dataclass(frozen=True, kw_only=True)
class Head:
    """One head's Q, K, V and dO, exactly as they were given, in 64 bits.

    Attributes:
        signs: R, (dimension, few), where results are to be projected.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor
    causal: bool
    scale: float
    dtype: str
    signs: torch.Tensor | None = None

    def projected(self, x: torch.Tensor) -> torch.Tensor:
        """Return X R, or X where nothing is projected."""
        return x if self.signs is None else x @ self.signs

    def sizes(self, x: torch.Tensor) -> torch.Tensor:
        """Return what 32-bit arithmetic is wrong by in proportion to, per element of X or X R.

        Of X R, an error of a weight is common to the columns of X, one of accumulation is not.
        """
        if self.signs is None:
            return x.abs()
        return self.projected(x).abs() + x.norm(dim=1, keepdim=True)


@dataclass
class Expected:
    """Expected results of one head, with each element's error bound before its own rounding."""

    o: torch.Tensor
    dq: torch.Tensor
    dk: torch.Tensor
    dv: torch.Tensor
    o_bound: torch.Tensor
    dq_bound: torch.Tensor
    dk_bound: torch.Tensor
    dv_bound: torch.Tensor


def expected(head: Head) -> Expected:
    """Compute one head, some rows of queries at a time."""
    q, k = head.projected(head.q), head.projected(head.k)
    result = Expected(*(torch.zeros_like(x) for x in (q, q, k, k, q, q, k, k)))
    for rows in chunks(q.shape[0]):
        add_rows(result, head, rows)
    # Independent errors of the chunks' parts were added as squares.
    result.dk_bound = result.dk_bound.sqrt()
    result.dv_bound = result.dv_bound.sqrt()
    return result


def add_rows(result: Expected, head: Head, rows: slice) -> None:
    """Compute rows of O and dQ, and what they add to dK and dV."""
    q, k, v, do = head.q[rows], head.k, head.v, head.do[rows]
    right_q, right_k, right_v, right_do = (head.projected(x) for x in (q, k, v, do))
    size_q, size_k, size_v, size_do = (head.sizes(x) for x in (q, k, v, do))
    unit, scale = RESULT_UNITS[head.dtype], head.scale
    p = weights(head, rows)
    fine = fineness(head, rows)
    o = p @ v
    dp = do @ v.T
    ds = p * (dp - (o * do).sum(1, keepdim=True))
    result.o[rows], result.dq[rows] = head.projected(o), scale * (ds @ right_k)
    result.dk += scale * (ds.T @ right_q)
    result.dv += p.T @ right_do

    walk, size = SAFETY * unit, abs(scale)
    common = p * (walk * ((o * do) ** 2).sum(1, keepdim=True).sqrt())
    ds_fine = fine * p * (dp.abs() + (v.abs().amax() * do.abs().sum(1, keepdim=True)))
    # What rounding P and dS to subnormal numbers is wrong by, in a product with each of these.
    least_q, least_k, least_v, least_do = (
        SAFETY * SUBNORMAL_UNITS[head.dtype] * right.norm(dim=0)
        for right in (right_q, right_k, right_v, right_do)
    )
    result.o_bound[rows] = walk * root(p, right_v) + fine * (p @ size_v) + least_v
    result.dq_bound[rows] = size * (
        walk * root(ds, right_k) + (common @ right_k).abs() + ds_fine @ size_k + least_k
    )
    result.dv_bound += (walk * root(p.T, right_do) + (fine * p).T @ size_do + least_do) ** 2
    common_dk = SAFETY * root(common.T, right_q)
    result.dk_bound += (
        size * (walk * root(ds.T, right_q) + common_dk + ds_fine.T @ size_q + least_q)
    ) ** 2


def weights(head: Head, rows: slice) -> torch.Tensor:
    """Return the softmax of rows of scores."""
    s = head.scale * (head.q[rows] @ head.k.T)
    if head.causal:
        row = torch.arange(rows.start, rows.stop, device=s.device)
        s.masked_fill_(torch.arange(s.shape[1], device=s.device) > row[:, None], -math.inf)
    return s.softmax(1)


def fineness(head: Head, rows: slice) -> torch.Tensor:
    """Return the relative error of each row's weights that 32-bit arithmetic explains."""
    q, k = head.q[rows], head.k
    size = abs(head.scale) * q.norm(dim=1, keepdim=True) * k.norm(dim=1).amax()
    terms = SAFETY * (math.sqrt(q.shape[1]) + math.sqrt(k.shape[0]))
    return ACCUMULATION_UNIT * (4 * size + terms)


def root(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the root of the sum of squared terms of A B."""
    return ((a * a) @ (b * b)).sqrt()


def chunks(length: int) -> Iterator[slice]:
    """Yield pieces of rows whose scores fit into memory."""
    for start in range(0, length, CHUNK_ROWS):
        yield slice(start, min(start + CHUNK_ROWS, length))


def compare(
    computed: torch.Tensor, head: Head, exact: torch.Tensor, bound: torch.Tensor
) -> Agreement:
    """Return the element that comes closest to its bound, its own rounding included.

    Args:
        computed: a head's result as a kernel left it.
        head: what it was computed from; its signs project the result as well.
        exact: the same of `Expected`.
        bound: how far off each element of `exact` may be before it is rounded.
    """
    found = computed.double()
    unit, least = RESULT_UNITS[head.dtype], SUBNORMAL_UNITS[head.dtype] + FLUSHED
    if head.signs is None:
        rounding = unit * exact.abs() + least
    else:
        rounding = SAFETY * unit * found.norm(dim=1, keepdim=True) + least * found.shape[1]
    return furthest(error=(head.projected(found) - exact).abs(), bound=bound + rounding)
