# SPDX-License-Identifier: Apache-2.0
"""Options of `gemm`, and the shapes that follow."""

from dataclasses import dataclass

from gpupack_workloads.settings import Options

Shape = tuple[int, int, int]

DTYPES = ("bfloat16", "float16", "float8_e4m3fn", "float32")
SIZES_ON_A_GPU = (4096, 8192)
SIZE_WITHOUT = 96
TYPES_ON_A_GPU = ("bfloat16", "float16", "float8_e4m3fn")
TYPES_WITHOUT = ("float32", "float16")


@dataclass(frozen=True, kw_only=True)
class GemmOptions(Options):
    """Options of `gemm`; `size` is rows and columns of all matrices.

    Attributes:
        dtype: the one type to multiply; None takes all that suit the device.
    """

    dtype: str | None = None


def sizes(size: int | None, *, simulated: bool) -> tuple[int, ...]:
    """Return the sizes of the square products."""
    if size is not None:
        return (size,)
    return (SIZE_WITHOUT,) if simulated else SIZES_ON_A_GPU


def ragged(size: int) -> Shape:
    """Return rows, columns and depth near a size, of which none divides by anything useful."""
    return (max(1, size - 1), size + 1, size + 3)


def types(dtype: str | None, *, simulated: bool) -> tuple[str, ...]:
    """Return the types to multiply."""
    if dtype is not None:
        return (dtype,)
    return TYPES_WITHOUT if simulated else TYPES_ON_A_GPU
