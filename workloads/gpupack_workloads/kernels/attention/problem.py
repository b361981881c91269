# SPDX-License-Identifier: Apache-2.0
"""What is to be computed, checked once."""

import math
from dataclasses import dataclass

import torch

from gpupack_workloads.kernels.errors import Unsupported

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HEAD_DIMENSIONS = (64, 128)
RANK = 4
# cuTensorMap and 16-byte loads want this.
ALIGNMENT_BYTES = 16
# Rows of the largest tile of any kernel.
PAD = 128


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Q is (batch, heads, rows, dimension), K and V are (batch, kv_heads, keys, dimension).

    Attributes:
        causal: whether row i sees only keys up to i.
        scale: of the scores; any finite number.
    """

    batch: int
    heads: int
    kv_heads: int
    rows: int
    keys: int
    dimension: int
    causal: bool
    scale: float

    @property
    def heads_per_kv(self) -> int:
        """How many query heads share a key head."""
        return self.heads // self.kv_heads

    @property
    def padded(self) -> int:
        """How many rows whole tiles have."""
        return -(-self.rows // PAD) * PAD

    @property
    def scale_log2(self) -> float:
        """The scale for scores in units of log2: the kernels exponentiate with base 2."""
        return self.scale * math.log2(math.e)


def problem_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, scale: float | None
) -> Problem:
    """Return what is to be computed; the scale is one over the root of the dimension by default.

    Raises:
        Unsupported: shapes, types or devices do not fit, or the scale is infinite or no number.
    """
    _check_kinds(q, k, v)
    _check_sizes(q, k, v)
    if causal and q.shape[2] != k.shape[2]:
        raise Unsupported(
            f"a causal mask needs as many keys as queries, not {k.shape[2]} and {q.shape[2]}"
        )
    if scale is not None and not math.isfinite(scale):
        raise Unsupported(f"the scale of the scores is {scale}, not a finite number")
    return Problem(
        batch=q.shape[0],
        heads=q.shape[1],
        kv_heads=k.shape[1],
        rows=q.shape[2],
        keys=k.shape[2],
        dimension=q.shape[3],
        causal=causal,
        scale=1 / math.sqrt(q.shape[3]) if scale is None else scale,
    )


def _check_kinds(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES:
        raise Unsupported(
            f"q, k and v are {q.dtype}, {k.dtype} and {v.dtype}; all must be one of {DTYPES}"
        )
    if not q.device == k.device == v.device:
        raise Unsupported(f"q, k and v are on {q.device}, {k.device} and {v.device}")
    if q.dtype == torch.bfloat16 and not q.is_cuda:
        raise Unsupported("bfloat16 needs a GPU: Triton's interpreter computes it wrongly")


def _check_sizes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == RANK:
        raise Unsupported(f"{shapes} are not all (batch, heads, length, dimension)")
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise Unsupported(f"{shapes} do not fit together")
    if 0 in (*q.shape, *k.shape):
        raise Unsupported(f"{shapes}: one is empty")
    if q.shape[1] % k.shape[1]:
        raise Unsupported(f"{q.shape[1]} query heads cannot share {k.shape[1]} key heads evenly")
    if q.shape[3] not in HEAD_DIMENSIONS:
        raise Unsupported(f"the head dimension is {q.shape[3]}, not one of {HEAD_DIMENSIONS}")


def aligned(x: torch.Tensor) -> torch.Tensor:
    """Return `x`, copied unless kernels can read it: rows in one piece, each start on 16 bytes."""
    per_piece = ALIGNMENT_BYTES // x.element_size()
    fits = x.stride(3) == 1 and x.data_ptr() % ALIGNMENT_BYTES == 0
    strides = (stride for stride, size in zip(x.stride()[:3], x.shape[:3], strict=True) if size > 1)
    if fits and all(stride > 0 and stride % per_piece == 0 for stride in strides):
        return x
    return x.contiguous()
