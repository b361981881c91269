# SPDX-License-Identifier: Apache-2.0
"""The products that others use: operators of torch's, with gradients by the same kernels.

Of several products of one A the gradient of A is one product over all of them. By themselves each
would write its own, and torch would add them up: two reads and a write of all of A for each but the
first.

A B of 32 bits with an A of 16, such as a weight under training, is rounded before the product,
and its gradient leaves the accumulators in 32 bits. If the caller rounded it, the gradient
would be written in 16 bits, read again, and written in 32. So under torch.autocast, which casts A.

Gradients are products by an operator that has none itself, so that a second derivative is an error
and not a wrong number.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from gpupack_kernels.casts import as_product, autocast_type
from gpupack_kernels.eager import past_dispatcher, sees_operators
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.gemm.launch import multiply, multiply_sum
from gpupack_kernels.operators.gemm.problem import FP8, check, result_type

Products = list[torch.Tensor]
# Who makes a product, and a sum of them.
MadeBy = tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]


def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return A @ B in the type of A; of 8-bit operands in bfloat16 (float16 without a GPU).

    Under torch.autocast longer operands are cast first. A product of no rows, of no columns, or
    over nothing is empty or zero.

    Operands may have any strides. On Hopper GPUs 8-bit and 16-bit operands are copied first where
    no tensor map can describe them: rows (or columns) that start off 16 bytes. Differentiable once.

    Args:
        a: (rows, columns).
        b: (columns, any number), of the type of A, or of 32 bits with an A of 16.

    Raises:
        Unsupported: shapes, types or devices do not fit, gradients of 8-bit operands are wanted, or
            the GPU has too little shared memory.
    """
    return gemms(a, [b])[0]


def gemms(a: torch.Tensor, bs: Sequence[torch.Tensor]) -> Products:
    """Return A @ B for each B, as `gemm` does. Differentiable once.

    Raises:
        Unsupported: as `gemm`.
    """
    if autocast_type(a) is not None:
        # A B of 32 bits is rounded below, past autograd: its gradient stays in 32 bits.
        (a,) = as_product(a)
        bs = [b if b.dtype == torch.float32 else as_product(b)[0] for b in bs]
    rounded = [_rounded(b, a) for b in bs]
    for b in rounded:
        check(a, b)
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (a, *bs))
    if wanted and a.dtype == FP8:
        raise Unsupported("8-bit operands have no gradients: keep the weights in a longer type")
    if sees_operators(a, *bs):
        products: Products = _products(a, rounded, list(bs))
        return products
    if not wanted:
        return [multiply(a, b) for b in rounded]
    return list(_eager(len(rounded), a, *rounded, *bs))


def _compute(a: torch.Tensor, bs: list[torch.Tensor], masters: list[torch.Tensor]) -> Products:
    """Return the products of A with each B; a master is what B was rounded from, or B itself."""
    del masters
    return [multiply(a, b) for b in bs]


def _multiply(left: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return multiply(left, right, dtype)


def _sum(
    dcs: list[torch.Tensor], bs: list[torch.Tensor], masters: list[torch.Tensor]
) -> torch.Tensor:
    """Return the gradient of A: the sum of all dC @ B^T. It depends on the masters, too."""
    del masters
    return multiply_sum([(dc, b.T) for dc, b in zip(dcs, bs, strict=True)])


_products = torch.library.custom_op("gpupack::gemms", _compute, mutates_args=())
_multiply_op = torch.library.custom_op("gpupack::gemm_backward", _multiply, mutates_args=())
_sum_op = torch.library.custom_op("gpupack::gemms_backward", _sum, mutates_args=())


BY_OPERATORS: MadeBy = (_multiply_op, _sum_op)
PAST_OPERATORS: MadeBy = (_multiply, _sum)


@_products.register_fake
def _(a: torch.Tensor, bs: list[torch.Tensor], masters: list[torch.Tensor]) -> Products:  # noqa: ARG001
    return [a.new_empty((a.shape[0], b.shape[1]), dtype=result_type(a)) for b in bs]


@_multiply_op.register_fake
def _(left: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return left.new_empty((left.shape[0], right.shape[1]), dtype=dtype)


@_sum_op.register_fake
def _(
    dcs: list[torch.Tensor],
    bs: list[torch.Tensor],
    masters: list[torch.Tensor],  # noqa: ARG001
) -> torch.Tensor:
    return dcs[0].new_empty((dcs[0].shape[0], bs[0].shape[0]))


def _keep(
    ctx: Any,
    inputs: tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]],
    output: Products,  # noqa: ARG001
) -> None:
    a, bs, masters = inputs
    ctx.save_for_backward(a, *bs, *masters)


def _gradients(
    operands: Sequence[torch.Tensor],
    wanted: tuple[bool, Sequence[bool]],
    dcs: Sequence[torch.Tensor | None],
    made_by: MadeBy,
) -> tuple[torch.Tensor | None, list[torch.Tensor | None]]:
    """DA = the sum of dC @ B^T, and dB = A^T @ dC, which read the transposes through their strides.

    They have the strides of A and B: a caller that adds up gradients of a transposed weight, as in
    a layer of a network, gets them in the weight's order.
    """
    (a, *both), (wants_a, wants_bs), (multiply, add_up) = operands, wanted, made_by
    bs, masters = both[: len(dcs)], both[len(dcs) :]
    # Unused products add nothing.
    used = [*zip(dcs, bs, masters, wants_bs, strict=True)]
    there = [(dc, b, master) for dc, b, master, _ in used if dc is not None]
    da = add_up(*map(list, zip(*there, strict=True))) if wants_a and there else None
    dbs: list[torch.Tensor | None] = []
    for dc, b, master, wants_b in used:
        if dc is None or not wants_b:
            dbs.append(None)
        elif b.stride(0) < b.stride(1):
            dbs.append(multiply(dc.T, a, master.dtype).T)
        else:
            dbs.append(multiply(a.T, dc, master.dtype))
    return da, dbs


def _gradients_by_lists(
    ctx: Any, dcs: list[torch.Tensor]
) -> tuple[torch.Tensor | None, list[None], list[torch.Tensor | None]]:
    wants_a, _, wants_masters = ctx.needs_input_grad
    wanted = wants_a, wants_masters
    da, dbs = _gradients(ctx.saved_tensors, wanted, dcs, BY_OPERATORS)
    return da, [None] * len(dbs), dbs


_products.register_autograd(_gradients_by_lists, setup_context=_keep)


def _flat(count: int, a: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Compute as an operator does, with lists as torch.autograd.Function has them: one by one."""
    return tuple(_compute(a, list(rest[:count]), list(rest[count:])))


def _keep_flat(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    count, a, *rest = inputs
    _keep(ctx, (a, rest[:count], rest[count:]), list(output))


def _gradients_flat(
    ctx: Any, *dcs: torch.Tensor | None, made_by: MadeBy
) -> tuple[torch.Tensor | None, ...]:
    _, wants_a, *others = ctx.needs_input_grad
    wanted = wants_a, others[len(dcs) :]
    da, dbs = _gradients(ctx.saved_tensors, wanted, dcs, made_by)
    return None, da, *[None] * len(dcs), *dbs


_eager = past_dispatcher(
    *(_flat, _keep_flat, partial(_gradients_flat, made_by=PAST_OPERATORS)),
    by_operators=partial(_gradients_flat, made_by=BY_OPERATORS),
)


def _rounded(b: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Return B rounded to the type of A if it is longer; the original gets the gradient."""
    halves = (torch.float16, torch.bfloat16)
    return b.detach().to(a.dtype) if a.dtype in halves and b.dtype == torch.float32 else b.detach()
