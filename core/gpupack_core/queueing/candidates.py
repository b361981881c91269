# SPDX-License-Identifier: Apache-2.0
"""Those who could be stopped, what each would lose, and sets of them by what they lose together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from gpupack_core.queueing.job import Running
from gpupack_core.queueing.room import Places

Cost = tuple[float, int, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One who could be stopped."""

    running: Running
    cost: Cost


def candidate(running: Running, now: float) -> Candidate:
    """With what it would lose."""
    return Candidate(running, (running.lost(now), sum(running.charge.values()), 1))


def milli_on(placements: Places, node: str) -> int:
    """GPU capacity that they hold of one node."""
    return sum(g.milli for p in placements if p.node == node for g in p.devices)


def cost_of(victims: Sequence[Candidate]) -> Cost:
    """Of all together."""
    lost, milli, jobs = (
        zip(*(one.cost for one in victims), strict=True) if victims else ((), (), ())
    )
    return sum(lost), sum(milli), sum(jobs)


def order(one: Candidate) -> tuple[Cost, str]:
    """The cheapest first."""
    return one.cost, one.running.job.id


def by_cost(candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, ...]]:
    """All sets but the empty one, the cheapest first.

    From a set whose last member is number n follow two: with n + 1 as well, and with n + 1 in its
    stead. Candidates are in the order of their cost, so neither is cheaper, and each set follows
    from one.
    """
    ordered = sorted(candidates, key=order)
    heap: list[tuple[Cost, tuple[int, ...]]] = []
    if ordered:
        heappush(heap, (ordered[0].cost, (0,)))
    while heap:
        _, numbers = heappop(heap)
        yield tuple(ordered[number] for number in numbers)
        following = numbers[-1] + 1
        if following < len(ordered):
            for chosen in ((*numbers, following), (*numbers[:-1], following)):
                heappush(heap, (cost_of([ordered[number] for number in chosen]), chosen))
