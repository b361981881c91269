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
def forward_kernel(gate_ptr, up_ptr, z_ptr, count, BLOCK: tl.constexpr):
    """Write z of this program's block."""
    # 64-bit: tokens times the inner width can be more than 32 bits count.
    elements = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = elements < count
    gate = tl.load(gate_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    z = gate * sigmoid(gate) * up
    tl.store(z_ptr + elements, z.to(z_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(gate_ptr, up_ptr, dz_ptr, dgate_ptr, dup_ptr, count, BLOCK: tl.constexpr):
    """Write both gradients of this program's block."""
    elements = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = elements < count
    gate = tl.load(gate_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    dz = tl.load(dz_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    s = sigmoid(gate)
    dgate = dz * up * s * (1.0 + gate * (1.0 - s))
    dup = dz * gate * s
    tl.store(dgate_ptr + elements, dgate.to(dgate_ptr.dtype.element_ty), mask=inside)
    tl.store(dup_ptr + elements, dup.to(dup_ptr.dtype.element_ty), mask=inside)
