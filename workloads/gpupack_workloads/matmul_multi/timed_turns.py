# SPDX-License-Identifier: Apache-2.0
"""Times every layout, transfer and split against one GPU, in turns.

Each GPU multiplies alone as well, all at once, and the fastest of them, cut as suits it best, is
what the gang is compared with.

Each way has one turn in a heat; the two fastest of each layout have several turns in a final,
of which medians are kept. Power is what limits such products, and a GPU that has just done
something easier seems to get more of it for a while: each turn warms up for as long as it is timed,
else the one after an easy rival was 7% faster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from gpupack_workloads.matmul_multi.layout import Cuts
from gpupack_workloads.timing import medians_in_turns, seconds_per_call

ALONE = "one GPU"
OF_EACH = 2


@dataclass(frozen=True)
class Candidate:
    """One way to compute the product.

    Attributes:
        layout: name of its layout; ALONE for one GPU.
        exchange: name of its exchange of blocks.
        cuts: numbers of pieces.
        start: computes it once.
    """

    layout: str
    exchange: str
    cuts: Cuts
    start: Callable[[], object]


@dataclass(frozen=True)
class TurnCounts:
    """Numbers of turns and calls.

    Attributes:
        turns: number of turns of each candidate.
        calls: in a turn of the gang, and before it; a GPU alone makes one.
    """

    turns: int
    calls: int


@dataclass(frozen=True)
class Timed:
    """A candidate's median time."""

    candidate: Candidate
    seconds: float


def time_candidates(
    candidates: Sequence[Candidate], *, device: torch.device, final: TurnCounts
) -> tuple[list[Timed], list[Timed]]:
    """Return every candidate's time in a heat, and in a final that of the fastest per layout."""
    heat = run(candidates, TurnCounts(turns=1, calls=final.calls), device)
    return heat, run(finalists(heat), final, device)


def run(candidates: Sequence[Candidate], counts: TurnCounts, device: torch.device) -> list[Timed]:
    """Return every candidate's median time."""
    turns = {one: partial(turn, one, counts, device) for one in candidates}
    return [Timed(*found) for found in medians_in_turns(turns, rounds=counts.turns).items()]


def turn(candidate: Candidate, counts: TurnCounts, device: torch.device) -> float:
    """Return a candidate's time in one turn: of the fastest GPU alone, or the gang's slowest."""
    alone = candidate.layout == ALONE
    calls = 1 if alone else counts.calls
    own = seconds_per_call(candidate.start, device=device, repeats=calls, warm_up=calls)
    return agreed(own, device, dist.ReduceOp.MIN if alone else dist.ReduceOp.MAX)


def finalists(heat: Sequence[Timed]) -> list[Candidate]:
    """Return the two fastest of each layout."""
    ranked = sorted(heat, key=lambda one: one.seconds)
    return [
        one.candidate
        for layout in dict.fromkeys(one.candidate.layout for one in heat)
        for one in [rival for rival in ranked if rival.candidate.layout == layout][:OF_EACH]
    ]


def fastest(timed: Sequence[Timed], layout: str | None = None) -> Timed:
    """Return the fastest of a layout, or of all that share the work."""
    rivals = [
        one
        for one in timed
        if one.candidate.layout == layout or (layout is None and one.candidate.layout != ALONE)
    ]
    return min(rivals, key=lambda one: one.seconds)


def agreed(seconds: float, device: torch.device, which: dist.ReduceOp.RedOpType) -> float:
    """Return the smallest or largest of all ranks' times."""
    times = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(times, op=which)
    return float(times.item())
