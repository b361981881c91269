# SPDX-License-Identifier: Apache-2.0
"""The vector addition kernel: one program adds one block of elements."""

import triton
import triton.language as tl


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, z_ptr, count, BLOCK: tl.constexpr):
    """Add the block of elements that belongs to this program."""
    # 64-bit: a vector of 8 GiB has more elements than 32 bits count.
    elements = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = elements < count
    x = tl.load(x_ptr + elements, mask=inside).to(tl.float32)
    y = tl.load(y_ptr + elements, mask=inside).to(tl.float32)
    tl.store(z_ptr + elements, (x + y).to(z_ptr.dtype.element_ty), mask=inside)
