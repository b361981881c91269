# SPDX-License-Identifier: Apache-2.0
"""The problem to compute, checked once."""

import math
from dataclasses import dataclass

import torch

from gpupack_kernels.errors import Unsupported
from gpupack_kernels.rows import block_of

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
DIMENSION_STEP, MAX_DIMENSION = 16, 256
RANK = 4
# cuTensorMap and 16-byte loads want this.
ALIGNMENT_BYTES = 16
# Rows of the largest tile of any kernel.
PAD = 128


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Head counts and sizes that all attention kernels need, for any layout of rows.

    Attributes:
        kv_heads: number of heads of keys and values; they divide heads.
        causal: whether a row sees only keys up to its own place.
        scale: scale of the scores; any finite number.
    """

    heads: int
    kv_heads: int
    dimension: int
    causal: bool
    scale: float

    @property
    def heads_per_kv(self) -> int:
        """How many query heads share a key head."""
        return self.heads // self.kv_heads

    @property
    def block(self) -> int:
        """How many columns a block of Triton's has that holds a head."""
        return block_of(self.dimension)

    @property
    def scale_log2(self) -> float:
        """The scale for scores in units of log2: the kernels exponentiate with base 2."""
        return self.scale * math.log2(math.e)


@dataclass(frozen=True, kw_only=True)
class Problem(Heads):
    """Q is (batch, heads, rows, dimension), K and V are (batch, kv_heads, keys, dimension)."""

    batch: int
    rows: int
    keys: int

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to attend to, or nothing that attends."""
        return 0 in (self.batch, self.rows, self.keys)

    @property
    def padded(self) -> int:
        """How many rows whole tiles have."""
        return -(-self.rows // PAD) * PAD


def problem_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, scale: float | None
) -> Problem:
    """Return what is to be computed; the scale is one over the root of the dimension by default.

    Raises:
        Unsupported: shapes, types or devices do not fit, or the scale is infinite or no number.
    """
    check_kinds(q, k, v)
    _check_sizes(q, k, v)
    if causal and q.shape[2] != k.shape[2]:
        raise Unsupported(
            f"a causal mask needs as many keys as queries, not {k.shape[2]} and {q.shape[2]}"
        )
    scale = scale_of(scale, q.shape[3])
    return Problem(
        batch=q.shape[0],
        heads=q.shape[1],
        kv_heads=k.shape[1],
        rows=q.shape[2],
        keys=k.shape[2],
        dimension=q.shape[3],
        causal=causal,
        scale=scale,
    )


def scale_of(scale: float | None, dimension: int) -> float:
    """Return the scale that was given, or one over the root of the dimension.

    Raises:
        Unsupported: it is infinite or no number.
    """
    if scale is None:
        return 1 / math.sqrt(dimension)
    if not math.isfinite(scale):
        raise Unsupported(f"the scale of the scores is {scale}, not a finite number")
    return scale


def check_kinds(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Refuse types that are not computed with, and operands that are not together.

    Raises:
        Unsupported: it is not supported.
    """
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
    check_heads(q.shape[1], k.shape[1])
    check_dimension(q.shape[3])


def check_heads(heads: int, kv_heads: int) -> None:
    """Refuse numbers of heads of which not as many queries' share each of the keys'.

    Raises:
        Unsupported: it is not supported.
    """
    if 0 in (heads, kv_heads) or heads % kv_heads:
        raise Unsupported(f"{heads} query heads cannot share {kv_heads} key heads evenly")


def check_dimension(dimension: int) -> None:
    """Refuse a head dimension that no kernel computes with.

    Raises:
        Unsupported: it is not supported.
    """
    if dimension % DIMENSION_STEP or not 0 < dimension <= MAX_DIMENSION:
        raise Unsupported(
            f"the head dimension is {dimension}, not a multiple of {DIMENSION_STEP} up to"
            f" {MAX_DIMENSION}"
        )


def aligned(x: torch.Tensor) -> torch.Tensor:
    """Return `x`, copied unless kernels can read it: rows in one piece, each start on 16 bytes."""
    per_piece = ALIGNMENT_BYTES // x.element_size()
    fits = x.stride(-1) == 1 and x.data_ptr() % ALIGNMENT_BYTES == 0
    strides = (stride for stride, size in zip(x.stride(), x.shape[:-1], strict=False) if size > 1)
    if fits and all(stride > 0 and stride % per_piece == 0 for stride in strides):
        return x
    return x.contiguous()
