# SPDX-License-Identifier: Apache-2.0
"""The operands of a product, checked once."""

from dataclasses import dataclass

import torch

from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.gemm.tuning import MAP_BYTES

FP8 = torch.float8_e4m3fn
Pair = tuple[torch.Tensor, torch.Tensor]
# Products that the Hopper kernel adds to one.
MAX_OTHERS = 2
DTYPES = (torch.float32, torch.float16, torch.bfloat16, FP8)


@dataclass(frozen=True)
class Arrivals:
    """Flags of the rows of A that have arrived, while others still arrive.

    Attributes:
        flags: 32-bit numbers; i is not 0 once rows [i * rows, (i + 1) * rows) are there.
        rows: number of rows of a part.
        first: the part with which the product begins, since it is there first; then go those after
            it, and round.
    """

    flags: torch.Tensor
    rows: int
    first: int


def has_map(matrix: torch.Tensor) -> bool:
    """Return whether a tensor map can describe the rows of a matrix."""
    step = matrix.stride(0) * matrix.element_size()
    return bool(
        matrix.stride(1) == 1
        and matrix.data_ptr() % MAP_BYTES == 0
        and step % MAP_BYTES == 0
        and step >= matrix.shape[1] * matrix.element_size()
    )


def is_nothing(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether a product is empty, or over nothing and so zero: no kernel computes it."""
    return not a.numel() or not b.numel()


def result_type(a: torch.Tensor) -> torch.dtype:
    """Return the type of a product: 8 bits would be too few for a sum."""
    if a.dtype != FP8:
        return a.dtype
    return torch.bfloat16 if a.is_cuda else torch.float16


def check(a: torch.Tensor, b: torch.Tensor) -> None:
    """Refuse what cannot be multiplied."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:  # noqa: PLR2004  matrices
        raise Unsupported(f"cannot multiply {tuple(a.shape)} by {tuple(b.shape)}")
    if a.dtype != b.dtype or a.dtype not in DTYPES:
        raise Unsupported(f"cannot multiply {a.dtype} by {b.dtype}; both must be one of {DTYPES}")
    if a.device != b.device:
        raise Unsupported(f"the matrices are on {a.device} and on {b.device}")
    if a.dtype == torch.bfloat16 and not a.is_cuda:
        raise Unsupported("bfloat16 needs a GPU: Triton's interpreter computes it wrongly")


def check_arrivals(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, arrivals: Arrivals) -> None:
    """Refuse flags that do not describe the rows of A, and operands that cannot arrive."""
    if c.shape != (a.shape[0], b.shape[1]) or c.dtype != result_type(a) or c.device != a.device:
        raise Unsupported(
            f"cannot write {tuple(a.shape)} by {tuple(b.shape)} to {tuple(c.shape)} of {c.dtype}"
        )
    if 0 in (*a.shape, *b.shape):
        raise Unsupported(f"nothing arrives: {tuple(a.shape)} by {tuple(b.shape)}")
    if not c.is_contiguous():
        raise Unsupported("the result must be contiguous")
    if not a.is_contiguous():
        raise Unsupported("a matrix that still arrives must be contiguous: it cannot be copied")
    parts, flags = arrivals.flags.numel(), arrivals.flags
    if flags.device != a.device or not flags.is_contiguous():
        raise Unsupported(f"flags on {flags.device} must be contiguous on {a.device}")
    if flags.dtype != torch.int32 or arrivals.rows * parts != a.shape[0]:
        raise Unsupported(
            f"{parts} flags of {flags.dtype} for parts of {arrivals.rows} rows do not"
            f" cover {a.shape[0]} rows by 32-bit numbers"
        )
    if not 0 <= arrivals.first < parts:
        raise Unsupported(f"part {arrivals.first} is not among {parts}")
    if a.is_cuda and a.shape[1] * a.element_size() % MAP_BYTES:
        raise Unsupported(f"rows of {a.shape[1]} elements are no multiple of {MAP_BYTES} bytes")
    if a.is_cuda and a.data_ptr() % MAP_BYTES:
        raise Unsupported(f"a matrix that still arrives must begin at a multiple of {MAP_BYTES}")
