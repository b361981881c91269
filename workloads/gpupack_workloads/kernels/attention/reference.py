# SPDX-License-Identifier: Apache-2.0
"""Attention and its gradient in 64 bits, by the textbook, and how far from them right ones may be.

Half-precision kernels round the weights P before the product with V, and dS before those with K and
Q: independent errors of at most unit(type) of each term, which add up like a random walk, so a sum
of terms t is wrong by at most SAFETY unit sqrt(sum t^2) (Higham and Mary, 2019). The certain bound,
unit sum |t|, is so wide at 16k keys that a skipped tile of 128 keys would pass. The gradient also
subtracts each row's sum of O dO, computed from the rounded O: an error common to a row.

Everything in 32 bits (scores, exponentials, row sums, accumulation) may be wrong by `fine` times
the sum of the terms' absolute values; `fine` grows with the score's size, because an error of a
score is a relative error of its weight. The result is rounded once more.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from gpupack_workloads.kernels.agreement import (
    ACCUMULATION_UNIT,
    RESULT_UNITS,
    SAFETY,
    SUBNORMAL_UNITS,
    Agreement,
)

CHUNK_ROWS = 2048
# Below 2^-126 the GPU's exponential gives zero; what such a weight would have been multiplied with
# is smaller than 2^16.
FLUSHED = 2.0**-110


@dataclass(frozen=True, kw_only=True)
class Head:
    """One head's Q, K, V and dO, exactly as they were given, in 64 bits."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor
    causal: bool
    scale: float
    dtype: str


@dataclass
class Expected:
    """What one head should give, and how far off each element may be before its own rounding."""

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
    q, k = head.q, head.k
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
    unit, scale = RESULT_UNITS[head.dtype], head.scale
    p = weights(head, rows)
    fine = fineness(head, rows)
    o = p @ v
    dp = do @ v.T
    delta = (o * do).sum(1, keepdim=True)
    ds = p * (dp - delta)
    result.o[rows], result.dq[rows] = o, scale * (ds @ k)
    result.dk += scale * (ds.T @ q)
    result.dv += p.T @ do

    common = p * (SAFETY * unit * ((o * do) ** 2).sum(1, keepdim=True).sqrt())
    walk = SAFETY * unit
    ds_fine = fine * p * (dp.abs() + (v.abs().amax() * do.abs().sum(1, keepdim=True)))
    result.o_bound[rows] = walk * root(p, v) + fine * (p @ v.abs())
    result.dq_bound[rows] = scale * (walk * root(ds, k) + (common @ k).abs() + ds_fine @ k.abs())
    result.dv_bound += ((walk * root(p.T, do)) + (fine * p).T @ do.abs()) ** 2
    result.dk_bound += (
        scale * (walk * root(ds.T, q) + SAFETY * root(common.T, q) + ds_fine.T @ q.abs())
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
    size = head.scale * q.norm(dim=1, keepdim=True) * k.norm(dim=1).amax()
    terms = SAFETY * (math.sqrt(q.shape[1]) + math.sqrt(k.shape[0]))
    return ACCUMULATION_UNIT * (4 * size + terms)


def root(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the root of the sum of squared terms of A B."""
    return ((a * a) @ (b * b)).sqrt()


def chunks(length: int) -> Iterator[slice]:
    """Cut rows, so that their scores fit into memory."""
    for start in range(0, length, CHUNK_ROWS):
        yield slice(start, min(start + CHUNK_ROWS, length))


def compare(
    computed: torch.Tensor, exact: torch.Tensor, bound: torch.Tensor, *, dtype: str
) -> Agreement:
    """Return the element that comes closest to its bound, its own rounding included."""
    error = (computed.double() - exact).abs()
    error[error.isnan()] = math.inf
    bound = bound + RESULT_UNITS[dtype] * exact.abs() + SUBNORMAL_UNITS[dtype] + FLUSHED
    worst = int((error / bound).argmax())
    return Agreement(error=float(error.flatten()[worst]), bound=float(bound.flatten()[worst]))
