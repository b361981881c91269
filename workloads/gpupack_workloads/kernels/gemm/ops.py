# SPDX-License-Identifier: Apache-2.0
"""The products that others use: operators of torch's, with gradients by the same kernels.

Of several products of one A the gradient of A is one product over all of them. By themselves each
would write its own, and torch would add them up: two reads and a write of all of A for each but the
first.

Gradients are products by an operator that has none itself, so that a second derivative is an error
and not a wrong number.
"""

from collections.abc import Sequence
from typing import Any

import torch

from gpupack_workloads.kernels.errors import Unsupported
from gpupack_workloads.kernels.gemm.launch import (
    FP8,
    check,
    multiply,
    multiply_sum,
    result_type,
)

Products = list[torch.Tensor]
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


def gemms(a: torch.Tensor, bs: Sequence[torch.Tensor]) -> Products:
    """Return A @ B for each B, as `gemm` does. Differentiable once.

    Args:
        a: (rows, columns), of 16 or 32 bits.
        bs: each (columns, any number), of the type of A.

    Raises:
        Unsupported: as `gemm`; or operands are of 8 bits.
    """
    for b in bs:
        check(a, b)
    if a.dtype == FP8:
        raise Unsupported("several products at a time are of 16 or 32 bits; use gemm for 8")
    products: Products = _products(a, list(bs))
    return products


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
        _gradient_as(a, dc, b.T) if wants_a else None,
        _gradient_as(b, a.T, dc) if wants_b else None,
    )


_product.register_autograd(_gradients, setup_context=_keep)


@torch.library.custom_op("gpupack::gemms", mutates_args=())
def _products(a: torch.Tensor, bs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [multiply(a, b) for b in bs]


@torch.library.custom_op("gpupack::gemms_backward", mutates_args=())
def _product_of_gradients(dcs: list[torch.Tensor], bs: list[torch.Tensor]) -> torch.Tensor:
    """Return the gradient of A: the sum of all dC @ B^T."""
    return multiply_sum([(dc, b.T) for dc, b in zip(dcs, bs, strict=True)])


@_products.register_fake
def _(a: torch.Tensor, bs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [a.new_empty((a.shape[0], b.shape[1])) for b in bs]


@_product_of_gradients.register_fake
def _(dcs: list[torch.Tensor], bs: list[torch.Tensor]) -> torch.Tensor:
    return dcs[0].new_empty((dcs[0].shape[0], bs[0].shape[0]))


def _keep_several(
    ctx: Any,
    inputs: tuple[torch.Tensor, list[torch.Tensor]],
    output: list[torch.Tensor],  # noqa: ARG001
) -> None:
    a, bs = inputs
    ctx.save_for_backward(a, *bs)


def _gradients_of_several(
    ctx: Any, dcs: list[torch.Tensor]
) -> tuple[torch.Tensor | None, list[torch.Tensor | None]]:
    a, *bs = ctx.saved_tensors
    wants_a, wants_bs = ctx.needs_input_grad
    return (
        _product_of_gradients(dcs, bs) if wants_a else None,
        [
            _gradient_as(b, a.T, dc) if wanted else None
            for b, dc, wanted in zip(bs, dcs, wants_bs, strict=True)
        ],
    )


_products.register_autograd(_gradients_of_several, setup_context=_keep_several)


def _gradient_as(operand: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return a product, by rows or by columns as an operand lies."""
    if operand.stride(0) < operand.stride(1):
        turned: torch.Tensor = _product_of_gradient(right.T, left.T)
        return turned.T
    product: torch.Tensor = _product_of_gradient(left, right)
    return product
