# SPDX-License-Identifier: Apache-2.0
"""The problem to compute, checked once.

The content of `cu_seqlens` is on the GPU: reading it would make the host wait. Kernels hold what
they find there to the tensors' sizes, so that a wrong number gives wrong rows and writes nowhere
else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.attention.problem import (
    Heads,
    check_dimension,
    check_heads,
    check_kinds,
    scale_of,
)

RANK = 3
OFFSETS = (torch.int32, torch.int64)


@dataclass(frozen=True, kw_only=True)
class PackedProblem(Heads):
    """Q is (rows, heads, dimension), K and V are (keys, kv_heads, dimension).

    With a causal mask the last row of a sequence sees all of its keys, the one before it all but
    one, and so on.

    Attributes:
        rows: number of rows of all sequences together; keys as well.
    """

    sequences: int
    rows: int
    keys: int


def problem_of(
    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    offsets: Sequence[torch.Tensor],
    *,
    causal: bool,
    scale: float | None,
) -> PackedProblem:
    """Return what is to be computed; the scale is one over the root of the dimension by default.

    Args:
        qkv: Q, K and V.
        offsets: where each sequence begins in Q, and in K and V; and where the last one ends.
        causal: see `PackedProblem`.
        scale: see there.

    Raises:
        Unsupported: shapes, types or devices do not fit, or the scale is infinite or no number.
    """
    q, k, v = qkv
    check_kinds(q, k, v)
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == RANK:
        raise Unsupported(f"{shapes} are not all (tokens, heads, dimension)")
    if k.shape != v.shape or q.shape[2] != k.shape[2]:
        raise Unsupported(f"{shapes} do not fit together")
    check_heads(q.shape[1], k.shape[1])
    check_dimension(q.shape[2])
    _check_offsets(offsets, q.device)
    return PackedProblem(
        sequences=offsets[0].shape[0] - 1,
        heads=q.shape[1],
        kv_heads=k.shape[1],
        rows=q.shape[0],
        keys=k.shape[0],
        dimension=q.shape[2],
        causal=causal,
        scale=scale_of(scale, q.shape[2]),
    )


def _check_offsets(offsets: Sequence[torch.Tensor], device: torch.device) -> None:
    of_q, of_k = offsets
    if of_q.dim() != 1 or of_q.shape != of_k.shape or not of_q.shape[0]:
        raise Unsupported(
            "cu_seqlens must be two lists of one length, a number more than there are sequences,"
            f" not {tuple(of_q.shape)} and {tuple(of_k.shape)}"
        )
    for each in offsets:
        if each.dtype not in OFFSETS:
            raise Unsupported(f"cu_seqlens of {each.dtype} are not of one of {OFFSETS}")
        if each.device != device:
            raise Unsupported(f"cu_seqlens are on {each.device}, and q on {device}")
