# SPDX-License-Identifier: Apache-2.0
"""The product that others use: `gemm`, with gradients by the same kernels."""

import torch
from torch.autograd.function import FunctionCtx

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.kernels.gemm.multiply import FP8, multiply

Gradients = tuple[torch.Tensor | None, torch.Tensor | None]


def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return A @ B in the type of A; of 8-bit operands in bfloat16 (float16 without a GPU).

    Operands may have any strides. On Hopper GPUs 8-bit and 16-bit operands are copied first where
    no tensor map can describe them: rows (or columns) that start off 16 bytes.

    Raises:
        BadArgument: shapes, types or devices do not fit, or gradients of 8-bit operands are wanted.
    """
    if not (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)):
        return multiply(a, b)
    if a.dtype == FP8:
        raise BadArgument("8-bit operands have no gradients: keep the weights in a longer type")
    c: torch.Tensor = Gemm.apply(a, b)
    return c


class Gemm(torch.autograd.Function):
    """C = A @ B; dA = dC @ B^T and dB = A^T @ dC read the transposes through their strides."""

    @staticmethod
    def forward(ctx: FunctionCtx, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply and keep both operands."""
        ctx.save_for_backward(a, b)
        return multiply(a, b)

    @staticmethod
    def backward(ctx: FunctionCtx, dc: torch.Tensor) -> Gradients:
        """Return the gradients that are wanted."""
        a, b = ctx.saved_tensors
        wants_a, wants_b = ctx.needs_input_grad
        return (
            multiply(dc, b.T) if wants_a else None,
            multiply(a.T, dc) if wants_b else None,
        )
