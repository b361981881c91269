# SPDX-License-Identifier: Apache-2.0
"""Times every layout, transfer and way to cut against one GPU, taking turns.

Each GPU multiplies alone as well, all at once, and the fastest of them, cut as suits it best, is
what the gang is compared with.

Everybody has one turn in a heat; the two fastest of each layout meet in a final of several turns,
of which medians are kept. Power is what limits such products, and a GPU that has just done
something easier seems to get more of it for a while: each turn warms up for as long as it is timed,
else whoever followed an easy rival was 7% faster.
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
class Entrant:
    """One way to compute the product.

    Attributes:
        layout: how it is shared; ALONE if it is not.
        exchange: how blocks travel.
        cuts: into what the work is cut.
        start: computes it once.
    """

    layout: str
    exchange: str
    cuts: Cuts
    start: Callable[[], object]


@dataclass(frozen=True)
class Race:
    """How long to time.

    Attributes:
        turns: of everybody.
        calls: in a turn of the gang, and before it; a GPU alone makes one.
    """

    turns: int
    calls: int


@dataclass(frozen=True)
class Timed:
    """An entrant's median time."""

    entrant: Entrant
    seconds: float


def compete(
    entrants: Sequence[Entrant], *, device: torch.device, final: Race
) -> tuple[list[Timed], list[Timed]]:
    """Return every entrant's time in a heat, and in a final that of the fastest of each layout."""
    heat = run(entrants, Race(turns=1, calls=final.calls), device)
    return heat, run(finalists(heat), final, device)


def run(entrants: Sequence[Entrant], race: Race, device: torch.device) -> list[Timed]:
    """Return every entrant's median time."""
    turns = {one: partial(turn, one, race, device) for one in entrants}
    return [Timed(*found) for found in medians_in_turns(turns, rounds=race.turns).items()]


def turn(entrant: Entrant, race: Race, device: torch.device) -> float:
    """Return an entrant's time in one turn: of the fastest GPU alone, of the slowest in a gang."""
    alone = entrant.layout == ALONE
    calls = 1 if alone else race.calls
    own = seconds_per_call(entrant.start, device=device, repeats=calls, warm_up=calls)
    return agreed(own, device, dist.ReduceOp.MIN if alone else dist.ReduceOp.MAX)


def finalists(heat: Sequence[Timed]) -> list[Entrant]:
    """Return the two fastest of each layout."""
    ranked = sorted(heat, key=lambda one: one.seconds)
    return [
        one.entrant
        for layout in dict.fromkeys(one.entrant.layout for one in heat)
        for one in [rival for rival in ranked if rival.entrant.layout == layout][:OF_EACH]
    ]


def fastest(timed: Sequence[Timed], layout: str | None = None) -> Timed:
    """Return the fastest of a layout, or of all that share the work."""
    rivals = [
        one
        for one in timed
        if one.entrant.layout == layout or (layout is None and one.entrant.layout != ALONE)
    ]
    return min(rivals, key=lambda one: one.seconds)


def agreed(seconds: float, device: torch.device, which: dist.ReduceOp.RedOpType) -> float:
    """Return the smallest or largest of all ranks' times."""
    times = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(times, op=which)
    return float(times.item())
