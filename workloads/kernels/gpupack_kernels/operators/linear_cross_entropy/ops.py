# SPDX-License-Identifier: Apache-2.0
"""The loss as torch calls it: an operator, with its gradients.

The gradients are an operator that has none itself, so that a second derivative is an error and not
a wrong number.
"""

from typing import Any

import torch

from gpupack_kernels.casts import as_product
from gpupack_kernels.operators.linear_cross_entropy import launch
from gpupack_kernels.operators.linear_cross_entropy.launch import Parts, empty_sums


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, *, ignored: int = -100
) -> torch.Tensor:
    """Return the mean cross-entropy of tokens whose logits are x weight', in 32 bits.

    Logits are rounded to the type of x, as a product's are, and used in 32 bits. The gradients are
    computed in the forward pass, in the type of x: G of up to 1, before they are divided by the
    number of tokens. Differentiable once with respect to x and weight. Under torch.autocast x and
    weight are cast first, as those of a product.

    Args:
        x: (..., columns).
        weight: (words, columns), of the type of x.
        targets: (...), whole numbers of 64 bits. One that is neither a word nor ignored makes the
            loss NaN.
        ignored: a target of tokens that do not count; of none that count the loss is NaN.

    Raises:
        Unsupported: shapes, types or devices do not fit.
    """
    x, weight = as_product(x, weight)
    launch.check(x, weight, targets)
    wanted = [torch.is_grad_enabled() and operand.requires_grad for operand in (x, weight)]
    parts: Parts = _forward(x, weight, targets, ignored, *wanted)
    return parts[0]


_forward = torch.library.custom_op("gpupack::linear_cross_entropy", launch.forward, mutates_args=())
_scaled = torch.library.custom_op(
    "gpupack::linear_cross_entropy_backward", launch.backward, mutates_args=()
)


@_forward.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,  # noqa: ARG001
    ignored: int,  # noqa: ARG001
    wants_x: bool,  # noqa: FBT001
    wants_weight: bool,  # noqa: FBT001
) -> Parts:
    loss, count = (x.new_empty((), dtype=torch.float32) for _ in range(2))
    return loss, count, *empty_sums(x, weight, wants_x=wants_x, wants_weight=wants_weight)


@_scaled.register_fake
def _(sums: torch.Tensor, gradient: torch.Tensor, count: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    return sums.new_empty(sums.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Parts) -> None:
    ctx.wanted = inputs[-2:]
    ctx.save_for_backward(*output[1:])


def _gradients(
    ctx: Any, gradient: torch.Tensor, *_: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    count, *sums = ctx.saved_tensors
    dx, dweight = (
        _scaled(each, gradient, count) if wanted else None
        for each, wanted in zip(sums, ctx.wanted, strict=True)
    )
    return dx, dweight, None, None, None, None


_forward.register_autograd(_gradients, setup_context=_keep)
