# SPDX-License-Identifier: Apache-2.0
"""The product that others use: an operator of torch's, with gradients by the same kernels.

Gradients are products by an operator that has none itself, so that a second derivative is an error
and not a wrong number.
"""

from typing import Any

import torch

from gpupack_workloads.kernels.errors import Unsupported
from gpupack_workloads.kernels.gemm.launch import FP8, check, multiply, result_type

Gradients = tuple[torch.Tensor | None, torch.Tensor | None]


def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return A @ B in the type of A; of 8-bit operands in bfloat16 (float16 without a GPU).

    Operands may have any strides. On Hopper GPUs 8-bit and 16-bit operands are copied first where
    no tensor map can describe them: rows (or columns) that start off 16 bytes. Differentiable once.

    Raises:
        Unsupported: shapes, types or devices do not fit, gradients of 8-bit operands are wanted, or
            the GPU has too little shared memory.
    """
    check(a, b)
    wanted = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    if wanted and a.dtype == FP8:
        raise Unsupported("8-bit operands have no gradients: keep the weights in a longer type")
    if not wanted and not torch.compiler.is_compiling():
        # Past torch's dispatcher, whose time counts beside a small product's.
        return multiply(a, b)
    c: torch.Tensor = _product(a, b)
    return c


@torch.library.custom_op("gpupack::gemm", mutates_args=())
def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return multiply(a, b)


@torch.library.custom_op("gpupack::gemm_backward", mutates_args=())
def _product_of_gradient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return multiply(a, b)


@_product.register_fake
def _(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.new_empty((a.shape[0], b.shape[1]), dtype=result_type(a))


@_product_of_gradient.register_fake
def _(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.new_empty((a.shape[0], b.shape[1]))


def _keep(
    ctx: Any,
    inputs: tuple[torch.Tensor, torch.Tensor],
    output: torch.Tensor,  # noqa: ARG001
) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, dc: torch.Tensor) -> Gradients:
    """DA = dC @ B^T and dB = A^T @ dC, which read the transposes through their strides.

    They lie in memory as A and B do: whoever adds up gradients of a weight that was turned, as in a
    layer of a network, has them as the weight is.
    """
    a, b = ctx.saved_tensors
    wants_a, wants_b = ctx.needs_input_grad
    return (
        _as(a, dc, b.T) if wants_a else None,
        _as(b, a.T, dc) if wants_b else None,
    )


def _as(operand: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return a product, by rows or by columns as an operand lies."""
    if operand.stride(0) < operand.stride(1):
        turned: torch.Tensor = _product_of_gradient(right.T, left.T)
        return turned.T
    product: torch.Tensor = _product_of_gradient(left, right)
    return product


_product.register_autograd(_gradients, setup_context=_keep)
