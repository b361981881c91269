# SPDX-License-Identifier: Apache-2.0
"""The softmax that others use, with its gradient."""

import torch
from torch.autograd.function import FunctionCtx

from gpupack_workloads.kernels.softmax.launch import backward, forward


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Return softmax over the last dimension, in the type of x, computed in 32 bits.

    Raises:
        BadArgument: the type or the device does not fit, or rows are empty.
    """
    y: torch.Tensor = Softmax.apply(x)
    return y


class Softmax(torch.autograd.Function):
    """y = softmax(x); dx = y (dy - y.dy) needs y only."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        """Compute softmax and keep it."""
        y = forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: FunctionCtx, dy: torch.Tensor) -> torch.Tensor:
        """Return the gradient of x."""
        (y,) = ctx.saved_tensors
        return backward(y, dy)
