# SPDX-License-Identifier: Apache-2.0
"""Launches the SwiGLU kernels: checks the arguments, sizes grids."""

import torch
import triton

from gpupack_kernels.devices import device_of
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.swiglu.kernel import backward_kernel, forward_kernel
from gpupack_kernels.rows import INTERPRETED_BLOCK, require

Two = tuple[torch.Tensor, torch.Tensor]
# Bytes of each input per program, and its warps: 16 bytes a thread forward, and 8 backward.
FORWARD_BYTES, FORWARD_WARPS = 4096, 8
BACKWARD_BYTES, BACKWARD_WARPS = 2048, 8


def forward(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up."""
    gate, up = gate.contiguous(), up.contiguous()
    z = torch.empty_like(gate)
    if z.numel():
        block = _block(z, FORWARD_BYTES)
        with device_of(z):
            forward_kernel[(triton.cdiv(z.numel(), block),)](
                *(gate, up, z, z.numel()), BLOCK=block, num_warps=FORWARD_WARPS
            )
    return z


def backward(gate: torch.Tensor, up: torch.Tensor, dz: torch.Tensor) -> Two:
    """Return the gradients of gate and up, given that of the result."""
    gate, up, dz = gate.contiguous(), up.contiguous(), dz.contiguous()
    dgate, dup = torch.empty_like(gate), torch.empty_like(up)
    if dz.numel():
        block = _block(dz, BACKWARD_BYTES)
        with device_of(dz):
            backward_kernel[(triton.cdiv(dz.numel(), block),)](
                *(gate, up, dz, dgate, dup, dz.numel()), BLOCK=block, num_warps=BACKWARD_WARPS
            )
    return dgate, dup


def check(gate: torch.Tensor, up: torch.Tensor) -> None:
    """Refuse operands that have no SwiGLU here."""
    require("swiglu", gate, up)
    if gate.shape != up.shape:
        raise Unsupported(f"swiglu of shapes {tuple(gate.shape)} and {tuple(up.shape)}")


def _block(x: torch.Tensor, size: int) -> int:
    """Return how many elements a program computes, of so many bytes of each input."""
    return size // int(x.element_size()) if x.is_cuda else INTERPRETED_BLOCK
