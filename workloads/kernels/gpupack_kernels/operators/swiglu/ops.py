# SPDX-License-Identifier: Apache-2.0
"""SwiGLU as torch calls it: an operator, with its gradients.

The gradients are an operator that has none itself, so that a second derivative is an error and not
a wrong number.
"""

from functools import partial
from typing import Any

import torch

from gpupack_kernels.casts import promoted
from gpupack_kernels.eager import past_dispatcher, sees_operators
from gpupack_kernels.operators.swiglu import launch
from gpupack_kernels.operators.swiglu.launch import Two


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up, element by element, computed in 32 bits.

    The result has the type of both, or of several types the one that holds all, as with torch.

    Operands with gaps in memory are copied first. Differentiable once.

    Args:
        gate: tensor of any shape.
        up: tensor of the shape of gate.

    Raises:
        Unsupported: shapes, types or devices do not fit.
    """
    launch.check(gate, up)
    gate, up = promoted(gate, up)
    z: torch.Tensor = (_forward if sees_operators(gate, up) else _eager)(gate, up)
    return z


_forward = torch.library.custom_op("gpupack::swiglu", launch.forward, mutates_args=())
_backward = torch.library.custom_op("gpupack::swiglu_backward", launch.backward, mutates_args=())


@_forward.register_fake
def _(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    return gate.new_empty(gate.shape)


@_backward.register_fake
def _(gate: torch.Tensor, up: torch.Tensor, dz: torch.Tensor) -> Two:  # noqa: ARG001
    return gate.new_empty(gate.shape), up.new_empty(up.shape)


def _keep(ctx: Any, inputs: Two, output: torch.Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, dz: torch.Tensor, *, compute: Any = _backward) -> Two:
    gradients: Two = compute(*ctx.saved_tensors, dz)
    return gradients


_forward.register_autograd(_gradients, setup_context=_keep)
_eager = past_dispatcher(
    *(launch.forward, _keep, partial(_gradients, compute=launch.backward)), by_operators=_gradients
)
