# SPDX-License-Identifier: Apache-2.0
"""Operands and rivals of one product."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.gemm.options import GemmOptions, Shape, ragged, sizes, types

FP8 = torch.float8_e4m3fn
# cuBLAS's requirement for 8-bit operands: rows and columns in multiples of 16 bytes.
FP8_MULTIPLE = 16


@dataclass(frozen=True)
class GemmProblem:
    """A product to compute.

    Attributes:
        shape: M, N and K.
        dtype: type of the operands.
        ragged: none of M, N, K is a multiple of a tile.
    """

    shape: Shape
    dtype: torch.dtype
    ragged: bool = False

    @property
    def name(self) -> str:
        """Return how metrics name it."""
        shape = f"ragged_{self.shape[1] - 1}" if self.ragged else str(self.shape[0])
        return f"{str(self.dtype).removeprefix('torch.')}_{shape}"

    @property
    def operations(self) -> int:
        """Count multiplications and additions."""
        m, n, k = self.shape
        return 2 * m * n * k


def problems(options: GemmOptions, *, simulated: bool) -> list[GemmProblem]:
    """Return square products in every type, and a ragged one in the first.

    Raises:
        BadArgument: a type that the device does not compute.
    """
    dtypes = [getattr(torch, name) for name in types(options.dtype, simulated=simulated)]
    if simulated and torch.bfloat16 in dtypes:
        raise BadArgument("bfloat16 needs a GPU: Triton's interpreter computes it wrongly")
    squares = [
        GemmProblem(shape=(size,) * 3, dtype=dtype)
        for dtype in dtypes
        for size in sizes(options.size, simulated=simulated)
    ]
    odd = ragged(squares[0].shape[0])
    return [*squares, GemmProblem(shape=odd, dtype=dtypes[0], ragged=True)]


def operands(
    problem: GemmProblem, *, device: Device, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A and B of normal numbers; one seed gives one pair per device.

    B of 8 bits is column-major, as tensor cores and cuBLAS require.
    """
    m, n, k = problem.shape
    chance = torch.Generator(device.torch).manual_seed(seed)
    a = torch.randn((m, k), generator=chance, device=device.torch)
    b = torch.randn(
        (n, k) if problem.dtype == FP8 else (k, n), generator=chance, device=device.torch
    )
    a, b = a.to(problem.dtype), b.to(problem.dtype)
    return a, b.T if problem.dtype == FP8 else b


def rival(
    problem: GemmProblem, a: torch.Tensor, b: torch.Tensor
) -> Callable[[], torch.Tensor] | None:
    """Return the same product by cuBLAS (on a CPU, by torch), or None where it has none."""
    if problem.dtype != FP8:
        return partial(torch.matmul, a, b)
    if not a.is_cuda or any(length % FP8_MULTIPLE for length in problem.shape):
        return None
    one = torch.ones((), device=a.device)
    # Fast: sums as the tensor cores make them, which is how ours are made.
    return partial(
        torch._scaled_mm,  # noqa: SLF001  torch's one door to cuBLAS for 8 bits
        a,
        b,
        one,
        one,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )
