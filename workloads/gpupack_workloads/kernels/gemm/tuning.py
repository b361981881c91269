# SPDX-License-Identifier: Apache-2.0
"""Tiles per device and type, from measurements: nothing is tried out when a job runs.

A device that is not in the table takes what its generation has, which is right everywhere and may
be slower.
"""

from dataclasses import dataclass

import torch

HOPPER = 9


@dataclass(frozen=True)
class Tiles:
    """The portable kernel: a program's tile, and what the compiler does with it."""

    m: int
    n: int
    k: int
    group_m: int
    warps: int
    stages: int


@dataclass(frozen=True)
class HopperTiles:
    """The Hopper kernel: a program's tile, in how many parts C is stored, and the stages of loads.

    Attributes:
        m: rows, one half for each of the two groups of warps.
        parts: 1 or 2; half a tile at a time needs half the shared memory, left for a stage more.
    """

    m: int
    n: int
    k: int
    stages: int
    parts: int
    group_m: int


# Three stages of A and B fill the shared memory of a Hopper or Ampere multiprocessor.
HALF = Tiles(m=128, n=256, k=64, group_m=8, warps=8, stages=3)
# 32-bit floats go through the ordinary cores: small tiles.
SINGLE = Tiles(m=64, n=64, k=32, group_m=8, warps=4, stages=3)
# The interpreter takes its time per program and per step, not per element.
INTERPRETED = Tiles(m=128, n=128, k=128, group_m=8, warps=4, stages=1)

HOPPER_16_BIT = HopperTiles(m=128, n=256, k=64, stages=4, parts=2, group_m=8)
HOPPER_8_BIT = HopperTiles(m=128, n=256, k=128, stages=4, parts=2, group_m=8)


def choose_tiles(a: torch.Tensor) -> Tiles:
    """Return the portable kernel's tiles for operands of a type, where they are."""
    if not a.is_cuda:
        return INTERPRETED
    return SINGLE if a.dtype == torch.float32 else HALF


def choose_hopper_tiles(a: torch.Tensor) -> HopperTiles | None:
    """Return the Hopper kernel's tiles, or None where it does not run or a type is not for it."""
    if not a.is_cuda or a.dtype == torch.float32:
        return None
    if torch.cuda.get_device_capability(a.device)[0] != HOPPER:
        return None
    return HOPPER_8_BIT if a.element_size() == 1 else HOPPER_16_BIT
