# SPDX-License-Identifier: Apache-2.0
"""Times every layout, transfer and size of pieces against one GPU, taking turns.

Each GPU multiplies alone as well, all at once, and the fastest of them is what the gang is compared
with. Turns alternate so that clocks and temperature are the same for all; medians are kept.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from gpupack_workloads.matmul_multi.layout import Layout
from gpupack_workloads.timing import seconds_per_call


@dataclass(frozen=True)
class Entrant:
    """One way to compute the product.

    Attributes:
        layout: how it is cut.
        exchange: how blocks travel.
        chunks: pieces of a block that travels.
        start: computes it once.
    """

    layout: str
    exchange: str
    chunks: int
    start: Callable[[], object]


@dataclass(frozen=True)
class Timed:
    """An entrant's median time."""

    entrant: Entrant
    seconds: float


def entrants(layouts: Sequence[tuple[Layout, str]], chunks: Sequence[int]) -> list[Entrant]:
    """Return every layout with every number of pieces."""

    def start(layout: Layout, count: int) -> Callable[[], object]:
        return lambda: layout.multiply(count)

    return [
        Entrant(layout.name, exchange, count, start(layout, count))
        for layout, exchange in layouts
        for count in chunks
    ]


def compete(
    entrants: Sequence[Entrant],
    alone: Callable[[], object],
    *,
    device: torch.device,
    turns: int,
    repeats: int,
) -> tuple[float, list[Timed]]:
    """Return one GPU's time, and every entrant's."""
    singles: list[float] = []
    times: list[list[float]] = [[] for _ in entrants]
    for turn in range(turns):
        warm_up = 1 if turn == 0 else 0
        own = seconds_per_call(alone, device=device, repeats=1, warm_up=warm_up)
        singles.append(agreed(own, device, dist.ReduceOp.MIN))
        for entrant, found in zip(entrants, times, strict=True):
            own = seconds_per_call(entrant.start, device=device, repeats=repeats, warm_up=1)
            found.append(agreed(own, device, dist.ReduceOp.MAX))
    timed = [
        Timed(entrant, statistics.median(found))
        for entrant, found in zip(entrants, times, strict=True)
    ]
    return statistics.median(singles), timed


def agreed(seconds: float, device: torch.device, which: dist.ReduceOp.RedOpType) -> float:
    """Return the smallest or largest of all ranks' times."""
    times = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(times, op=which)
    return float(times.item())
