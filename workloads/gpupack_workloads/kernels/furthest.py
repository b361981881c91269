# SPDX-License-Identifier: Apache-2.0
"""The element of a tensor that is furthest off: `agreement.worst` where the elements are."""

import math

import torch

from gpupack_workloads.kernels.agreement import Agreement


def furthest(*, error: torch.Tensor, bound: torch.Tensor) -> Agreement:
    """Return the element that comes closest to its bound, or exceeds it most.

    One whose error or bound is no number, or infinite, exceeds it most. A bound may be zero, where
    results must be exact.
    """
    share = torch.where(error == 0, 0.0, error / bound)
    unknown = ~(error.isfinite() & bound.isfinite())
    place = share.masked_fill_(unknown, math.inf).argmax()
    return Agreement(
        error=error.nan_to_num(nan=math.inf, posinf=math.inf).flatten()[place].item(),
        bound=bound.flatten()[place].item(),
    )
