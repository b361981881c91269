# SPDX-License-Identifier: Apache-2.0
"""The SwiGLU that others use: checks, sizes of grids; an operator of torch's with its gradients.

The gradients are an operator that has none itself, so that a second derivative is an error and not
a wrong number.
"""

from functools import partial
from typing import Any

import torch
import triton

from gpupack_workloads.kernels.casts import promoted
from gpupack_workloads.kernels.devices import device_of
from gpupack_workloads.kernels.eager import past_dispatcher, sees_operators
from gpupack_workloads.kernels.errors import Unsupported
from gpupack_workloads.kernels.rows import INTERPRETED_BLOCK, require
from gpupack_workloads.kernels.swiglu.kernel import backward_kernel, forward_kernel

Two = tuple[torch.Tensor, torch.Tensor]

# Bytes of each input per program, and its warps: 16 bytes a thread forward, and 8 backward.
FORWARD_BYTES, FORWARD_WARPS = 4096, 8
BACKWARD_BYTES, BACKWARD_WARPS = 2048, 8


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
    require("swiglu", gate, up)
    if gate.shape != up.shape:
        raise Unsupported(f"swiglu of shapes {tuple(gate.shape)} and {tuple(up.shape)}")
    gate, up = promoted(gate, up)
    z: torch.Tensor = (_forward if sees_operators(gate, up) else _eager)(gate, up)
    return z


def _compute(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    gate, up = gate.contiguous(), up.contiguous()
    z = torch.empty_like(gate)
    if z.numel():
        block = _block(z, FORWARD_BYTES)
        with device_of(z):
            forward_kernel[(triton.cdiv(z.numel(), block),)](
                *(gate, up, z, z.numel()), BLOCK=block, num_warps=FORWARD_WARPS
            )
    return z


def _compute_gradients(gate: torch.Tensor, up: torch.Tensor, dz: torch.Tensor) -> Two:
    gate, up, dz = gate.contiguous(), up.contiguous(), dz.contiguous()
    dgate, dup = torch.empty_like(gate), torch.empty_like(up)
    if dz.numel():
        block = _block(dz, BACKWARD_BYTES)
        with device_of(dz):
            backward_kernel[(triton.cdiv(dz.numel(), block),)](
                *(gate, up, dz, dgate, dup, dz.numel()), BLOCK=block, num_warps=BACKWARD_WARPS
            )
    return dgate, dup


_forward = torch.library.custom_op("gpupack::swiglu", _compute, mutates_args=())
_backward = torch.library.custom_op("gpupack::swiglu_backward", _compute_gradients, mutates_args=())


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
    *(_compute, _keep, partial(_gradients, compute=_compute_gradients)), by_operators=_gradients
)


def _block(x: torch.Tensor, size: int) -> int:
    """Return how many elements a program computes, of so many bytes of each input."""
    return size // int(x.element_size()) if x.is_cuda else INTERPRETED_BLOCK
