# SPDX-License-Identifier: Apache-2.0
"""All-reduce: every rank computes the expected sum, and compares.

Elements are whole numbers below 2**10, so that sums of thousands of ranks are exact in float32.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from gpupack_workloads.bandwidth import bus_gb_per_s
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.mpi.world import World, forget_staging

ROUNDS = 10
WARM_UP = 3
FLOAT_BYTES = 4
LARGEST_TERM = 2**10

Sum = Callable[[torch.Tensor, torch.Tensor], None]
"""Sums the first over all ranks into the second."""
SumInPlace = Callable[[torch.Tensor], object]
"""Sums over all ranks, where the terms are."""


@dataclass(frozen=True)
class Summed:
    """One size of all-reduce."""

    size_bytes: int
    ranks: int
    seconds: float

    @property
    def bus_gb_per_s(self) -> float:
        """By the method of nccl-tests."""
        crossings = 2 * (self.ranks - 1) / self.ranks
        return bus_gb_per_s(size_bytes=self.size_bytes, seconds=self.seconds, crossings=crossings)


def summed(world: World, size_bytes: int, *, seed: int, by: Sum) -> Summed:
    """Time a sum and check every element.

    Raises:
        WrongResult: elements differ from the sum that was worked out here.
    """
    mine, expected = question(world, size_bytes, seed=seed)
    found = torch.zeros_like(mine)
    calls = [partial(by, mine, found)] * ROUNDS
    return _timed(world, calls, found.zero_, results=[found], expected=expected)


def summed_in_place(world: World, size_bytes: int, *, seed: int, by: SumInPlace) -> Summed:
    """Do so with a sum that replaces its terms; each call has terms of its own.

    Raises:
        WrongResult: elements differ from the sum that was worked out here.
    """
    mine, expected = question(world, size_bytes, seed=seed)
    found = [torch.empty_like(mine) for _ in range(ROUNDS)]

    def fill() -> None:
        for each in found:
            each.copy_(mine)

    calls = [partial(by, each) for each in found]
    return _timed(world, calls, fill, results=found, expected=expected)


def question(world: World, size_bytes: int, *, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's terms, and the sums over all ranks."""
    elements = max(1, size_bytes // FLOAT_BYTES)
    mine = terms(elements, world.index, seed=seed, world=world)
    expected = torch.zeros_like(mine)
    for rank in range(world.ranks):
        expected += terms(elements, rank, seed=seed, world=world)
    return mine, expected


def _timed(
    world: World,
    calls: Sequence[Callable[[], object]],
    fill: Callable[[], object],
    *,
    results: Sequence[torch.Tensor],
    expected: torch.Tensor,
) -> Summed:
    """Time calls one after another; `fill` makes ready what they leave their results in."""
    fill()
    for call in calls[:WARM_UP]:
        call()
    fill()
    world.settle()
    world.comm.Barrier()
    start = time.perf_counter()
    for call in calls:
        call()
    world.settle()
    seconds = world.slowest((time.perf_counter() - start) / len(calls))
    elements = sum(found.numel() for found in results)
    if wrong := sum(int((found != expected).sum()) for found in results):
        raise WrongResult(f"{wrong} of {elements} sums over {world.ranks} ranks are wrong")
    forget_staging()
    return Summed(expected.numel() * FLOAT_BYTES, world.ranks, seconds)


def terms(elements: int, rank: int, *, seed: int, world: World) -> torch.Tensor:
    """Return a rank's terms, which any rank can work out: a multiplicative hash of the place."""
    places = torch.arange(elements, dtype=torch.int64, device=world.device.torch)
    mixed = (places + seed % 2**31) * 2654435761 + rank * 40503
    return ((mixed >> 7) % LARGEST_TERM).to(torch.float32)
