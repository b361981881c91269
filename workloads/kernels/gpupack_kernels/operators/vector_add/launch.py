# SPDX-License-Identifier: Apache-2.0
"""Launches the vector addition: checks the arguments, sizes the grid."""

import torch
import triton

from gpupack_kernels.devices import device_of
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.vector_add.kernel import vector_add_kernel

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Every thread of a program has several 16-byte loads of each input under way before it adds.
BLOCK_BYTES = 16 * 1024
WARPS = 8
# The interpreter takes its time per program, not per element.
INTERPRETED_BLOCK = 1 << 16


def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return x + y."""
    x, y = x.contiguous(), y.contiguous()
    z = torch.empty_like(x)
    if z.numel():
        block = BLOCK_BYTES // x.element_size() if x.is_cuda else INTERPRETED_BLOCK
        grid = (triton.cdiv(z.numel(), block),)
        with device_of(z):
            vector_add_kernel[grid](x, y, z, z.numel(), BLOCK=block, num_warps=WARPS)
    return z


def check(x: torch.Tensor, y: torch.Tensor) -> None:
    """Refuse vectors that cannot be added here."""
    if x.shape != y.shape:
        raise Unsupported(f"cannot add shapes {tuple(x.shape)} and {tuple(y.shape)}")
    if x.dtype not in DTYPES or y.dtype not in DTYPES:
        raise Unsupported(f"cannot add {x.dtype} and {y.dtype}; both must be one of {DTYPES}")
    if x.device != y.device:
        raise Unsupported(f"the vectors are on {x.device} and on {y.device}")
    if torch.bfloat16 in (x.dtype, y.dtype) and not x.is_cuda:
        raise Unsupported("bfloat16 needs a GPU: Triton's interpreter computes it wrongly")
