# SPDX-License-Identifier: Apache-2.0
"""Tiles per device and type, from measurements: nothing is tried out when a job runs.

A device that is not in the table takes what its generation has, which is right everywhere and may
be slower.
"""

import math
from dataclasses import dataclass

import torch

from gpupack_kernels.devices import fastest_that_fits, is_hopper, properties_of


@dataclass(frozen=True)
class Tiles:
    """Configuration of the portable kernel: a program's tile, and compiler options.

    Attributes:
        shared_kib: for all stages of A and B, or C where that is more; no compiler takes more.
    """

    m: int
    n: int
    k: int
    group_m: int
    warps: int
    stages: int
    shared_kib: int


@dataclass(frozen=True)
class HopperTiles:
    """Configuration of the Hopper kernel: a program's tile, parts of C's store, load stages.

    Attributes:
        m: rows, one half for each of the two groups of warps.
        parts: 1, 2 or 4; one part of a tile is stored while the next is rounded.
    """

    m: int
    n: int
    k: int
    stages: int
    parts: int
    group_m: int


# Three stages fill the shared memory of a Hopper or Ampere multiprocessor; the second are for GPUs
# with 64 or 100 KiB.
HALF = (
    Tiles(m=128, n=256, k=64, group_m=8, warps=8, stages=3, shared_kib=144),
    Tiles(m=128, n=128, k=32, group_m=8, warps=4, stages=3, shared_kib=64),
)
# 32-bit floats go through the ordinary cores: small tiles.
SINGLE = (Tiles(m=64, n=64, k=32, group_m=8, warps=4, stages=3, shared_kib=48),)
HALF_BYTES = 2
# The interpreter takes its time per program and per step, not per element.
INTERPRETED = Tiles(m=128, n=128, k=128, group_m=8, warps=4, stages=1, shared_kib=0)

# By device and bytes per element, the fastest for large products first. The others are for products
# of few tiles: the time is that of the busiest multiprocessor, `waves` tiles one after another.
H200 = "NVIDIA H200"
HOPPER_TILES: dict[tuple[str, int], tuple[HopperTiles, ...]] = {
    (H200, 2): (
        HopperTiles(m=128, n=256, k=64, stages=3, parts=2, group_m=8),
        HopperTiles(m=128, n=128, k=64, stages=6, parts=1, group_m=8),
    ),
    (H200, 1): (
        HopperTiles(m=128, n=256, k=128, stages=3, parts=2, group_m=8),
        HopperTiles(m=128, n=128, k=128, stages=6, parts=1, group_m=8),
    ),
}
# Of a C of 32 bits, which takes more room where it is rounded and stored; of 16-bit operands.
SUM_TILES = (
    HopperTiles(m=128, n=256, k=64, stages=3, parts=4, group_m=8),
    HopperTiles(m=128, n=128, k=64, stages=4, parts=1, group_m=8),
)
# Of products of so few tiles that K is cut.
SPLIT_TILES = SUM_TILES[1]
# Fewer steps than these of a part would take about as long as adding up the parts.
MIN_SPLIT_STEPS = 32
MAX_SPLITS = 16
# A tensor map reads rows that start at multiples of it.
MAP_BYTES = 16
SUM_BYTES = 4
# What a tile of half the columns costs beyond half the time: A is loaded as often as B.
NARROW_COST = 1.1


def choose_tiles(a: torch.Tensor) -> Tiles:
    """Return the portable kernel's tiles for operands of a type, where they are.

    Raises:
        Unsupported: the GPU has too little shared memory.
    """
    if not a.is_cuda:
        return INTERPRETED
    return fastest_that_fits(SINGLE if a.dtype == torch.float32 else HALF, a)


def choose_hopper_tiles(
    a: torch.Tensor, columns: int, result: torch.dtype | None = None
) -> HopperTiles | None:
    """Return the Hopper kernel's tiles, or None where it does not run or a type is not for it."""
    return hopper_tiles(a, columns, result) if runs_on_hopper(a) else None


def runs_on_hopper(a: torch.Tensor) -> bool:
    """Return whether the Hopper kernel runs where A is, and takes its type."""
    return a.dtype != torch.float32 and is_hopper(a)


def hopper_tiles(a: torch.Tensor, columns: int, result: torch.dtype | None = None) -> HopperTiles:
    """Return the Hopper kernel's tiles, where it runs."""
    device = properties_of(a)
    known = HOPPER_TILES.get((device.name, a.element_size()))
    return cheapest(
        SUM_TILES if result == torch.float32 else known or HOPPER_TILES[H200, a.element_size()],
        rows=a.shape[0],
        columns=columns,
        at_once=device.multi_processor_count,
    )


def splits_for(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> int:
    """Return into how many parts the Hopper kernel should cut K; 1 does not cut it.

    As many as fill the multiprocessors with tiles, if two at least do.
    """
    (rows, summed), columns = a.shape, b.shape[1]
    # The sums lie one below the other, and leave by a tensor map.
    whole = rows % SPLIT_TILES.m == 0 and columns * SUM_BYTES % MAP_BYTES == 0
    if a.element_size() != HALF_BYTES or not whole or not c.is_contiguous():
        return 1
    at_once = int(properties_of(a).multi_processor_count)
    tiles = rows // SPLIT_TILES.m * math.ceil(columns / SPLIT_TILES.n)
    steps: int = math.ceil(summed / SPLIT_TILES.k)
    splits = max(1, min(at_once // tiles, steps // MIN_SPLIT_STEPS, MAX_SPLITS))
    # Rounded so that no part is empty.
    length: int = math.ceil(steps / splits)
    return math.ceil(steps / length)


def cheapest(
    options: tuple[HopperTiles, ...], *, rows: int, columns: int, at_once: int
) -> HopperTiles:
    """Return the tiles with which the busiest multiprocessor is done first."""

    def cost(tiles: HopperTiles) -> float:
        turns = waves(tiles, rows=rows, columns=columns, at_once=at_once)
        return turns * tiles.n * (1 if tiles.n == options[0].n else NARROW_COST)

    return min(options, key=cost)


def waves(tiles: HopperTiles, *, rows: int, columns: int, at_once: int) -> int:
    """Return how many tiles the busiest multiprocessor computes."""
    count = math.ceil(rows / tiles.m) * math.ceil(columns / tiles.n)
    return math.ceil(count / at_once)
