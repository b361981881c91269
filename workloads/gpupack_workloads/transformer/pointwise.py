# SPDX-License-Identifier: Apache-2.0
"""What lies between the products: reads and writes much, computes little.

Compiled, each is one kernel forward and one or two back, instead of five to ten. Whose kernels do
the rest makes no difference here.

Shape legend: B rows, S tokens, H heads, D numbers per head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch.nn import functional

ROTATION_BASE = 10000.0
EPSILON = 1e-5


@dataclass(frozen=True)
class Pointwise:
    """The functions, compiled or as they are.

    Attributes:
        normalise: x and a scale to x over its root mean square, in 32 bits, times the scale.
        rotate: [B, H, S, D] and tables of cosines and sines to pairs turned by them.
        gate: silu of the first times the second.
    """

    normalise: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    rotate: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    gate: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@cache
def pointwise(*, compiled: bool) -> Pointwise:
    """Return the functions; they are compiled once per process."""
    if not compiled:
        return Pointwise(normalise, rotate, gate)
    return Pointwise(*(torch.compile(f, dynamic=False) for f in (normalise, rotate, gate)))


def normalise(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Divide by the root of the mean square over the last dimension."""
    whole = functional.rms_norm(x.float(), (x.shape[-1],), scale.float(), EPSILON)
    return whole.to(x.dtype)


def rotate(
    x_BHSD: torch.Tensor,  # noqa: N803  shape suffix
    cosine: torch.Tensor,
    sine: torch.Tensor,
) -> torch.Tensor:
    """Turn pairs of numbers, one of each half, by an angle of their position."""
    left, right = x_BHSD.chunk(2, dim=-1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=-1)


def gate(opening: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Let through what the first opens."""
    return functional.silu(opening) * value


@cache
def rotation(
    length: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines [S, D / 2]; later pairs turn more slowly."""
    powers = torch.arange(0, width, 2, device=device) / width
    angles = torch.outer(torch.arange(length, device=device), ROTATION_BASE**-powers)
    return angles.cos().to(dtype), angles.sin().to(dtype)
