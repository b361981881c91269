# SPDX-License-Identifier: Apache-2.0
"""The RMS norm as torch calls it: an operator, with its gradients.

The gradients are an operator that has none itself, so that a second derivative is an error and not
a wrong number.
"""

from functools import partial
from typing import Any

import torch

from gpupack_kernels.casts import CASTS_RMS_NORM, as_sum
from gpupack_kernels.eager import past_dispatcher, sees_operators
from gpupack_kernels.operators.rms_norm import launch
from gpupack_kernels.operators.rms_norm.launch import Two


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float = 1e-5) -> torch.Tensor:
    """Return x over the root of the mean square of its last dimension, times a weight.

    Computed in 32 bits, rounded once to the type of x. Differentiable once. Under torch.autocast
    the operands are cast to 32 bits first, if the installed torch does so.

    Args:
        x: (..., columns), at most 65536 of them.
        weight: (columns), of any type.
        epsilon: added to the mean square.

    Raises:
        Unsupported: shapes, types or devices do not fit.
    """
    launch.check(x, weight)
    if CASTS_RMS_NORM:
        x, weight = as_sum(x, weight)
    y: torch.Tensor = (_forward if sees_operators(x, weight) else _eager)(x, weight, epsilon)[0]
    return y


_forward = torch.library.custom_op("gpupack::rms_norm", launch.forward, mutates_args=())
_backward = torch.library.custom_op("gpupack::rms_norm_backward", launch.backward, mutates_args=())


@_forward.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> Two:  # noqa: ARG001
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=torch.float32)


@_backward.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor, dy: torch.Tensor) -> Two:  # noqa: ARG001
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Two) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])


def _gradients(
    ctx: Any, dy: torch.Tensor, _: torch.Tensor | None, *, compute: Any = _backward
) -> tuple[torch.Tensor, torch.Tensor, None]:
    dx, dweight = compute(*ctx.saved_tensors, dy)
    return dx, dweight, None


_forward.register_autograd(_gradients, setup_context=_keep)
_eager = past_dispatcher(
    *(launch.forward, _keep, partial(_gradients, compute=launch.backward)), by_operators=_gradients
)
