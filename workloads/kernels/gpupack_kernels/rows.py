# SPDX-License-Identifier: Apache-2.0
"""What kernels that walk rows of numbers share: types, shapes, blocks."""

import torch

from gpupack_kernels.errors import Unsupported

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# The interpreter takes its time per program, not per element.
INTERPRETED_BLOCK = 1 << 16


def require(what: str, *tensors: torch.Tensor) -> None:
    """Refuse operands of types that are not computed with, or that are on different devices.

    Raises:
        Unsupported: a type or a device is not supported.
    """
    for tensor in tensors:
        if tensor.dtype not in DTYPES:
            raise Unsupported(f"{what} of {tensor.dtype} is not computed here; use one of {DTYPES}")
        if tensor.dtype == torch.bfloat16 and not tensor.is_cuda:
            raise Unsupported("bfloat16 needs a GPU: Triton's interpreter computes it wrongly")
        if tensor.device != tensors[0].device:
            raise Unsupported(
                f"operands of {what} are on {tensors[0].device} and on {tensor.device}"
            )


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """Return a matrix of the last dimension's rows, a copy only where strides leave no choice."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 or rows.shape[1] == 1 else rows.contiguous()


def has_tokens_first(x: torch.Tensor) -> bool:
    """Return whether heads (batch, heads, tokens, dimension) have all of a token's side by side.

    Products return heads in this order, and take them in this order.
    """
    return bool(x.stride(2) > x.stride(1))


def empty_heads(x: torch.Tensor, *, tokens_first: bool) -> torch.Tensor:
    """Return an empty tensor of the shape of x, contiguous in the given order."""
    batch, heads, tokens, dimension = x.shape
    if tokens_first:
        return x.new_empty((batch, tokens, heads, dimension)).transpose(1, 2)
    return x.new_empty(x.shape)


def empty_like_heads(heads: torch.Tensor) -> torch.Tensor:
    """Return an empty tensor in the order of `heads`, so that no caller has to transpose it."""
    return empty_heads(heads, tokens_first=has_tokens_first(heads))


def block_of(columns: int) -> int:
    """Return the smallest power of two that holds a row."""
    return 1 << (columns - 1).bit_length()
