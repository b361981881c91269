# SPDX-License-Identifier: Apache-2.0
"""SwiGLU and its gradients in Triton: one program computes one block of elements."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def sigmoid(x):
    """Return 1 / (1 + exp(-x)); exp2 is the hardware's own."""
    return 1.0 / (1.0 + tl.exp2(-x * LOG2_E))


@triton.jit
def load(at, inside):
    """Read values in 32 bits."""
    return tl.load(at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store(at, values, inside):
    """Write values, rounded to their type."""
    tl.store(at, values.to(at.dtype.element_ty), mask=inside)


@triton.jit
def forward_kernel(gate_ptr, up_ptr, z_ptr, count, BLOCK: tl.constexpr):
    """Write z of this program's block."""
    # 64-bit: tokens times the inner width can be more than 32 bits count.
    elements = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = elements < count
    gate = load(gate_ptr + elements, inside)
    up = load(up_ptr + elements, inside)
    z = gate * sigmoid(gate) * up
    store(z_ptr + elements, z, inside)


@triton.jit
def backward_kernel(gate_ptr, up_ptr, dz_ptr, dgate_ptr, dup_ptr, count, BLOCK: tl.constexpr):
    """Write both gradients of this program's block."""
    elements = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = elements < count
    gate = load(gate_ptr + elements, inside)
    up = load(up_ptr + elements, inside)
    dz = load(dz_ptr + elements, inside)
    s = sigmoid(gate)
    dgate = dz * up * s * (1.0 + gate * (1.0 - s))
    dup = dz * gate * s
    store(dgate_ptr + elements, dgate, inside)
    store(dup_ptr + elements, dup, inside)
