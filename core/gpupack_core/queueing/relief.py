# SPDX-License-Identifier: Apache-2.0
"""Who else has to be stopped so that the books allow what room was made for.

A job for which room was made can still be refused: its quota is used up, or its tenant would be
left with a larger share than the victims'. Then others who count against the same promises may be
stopped beside them, wherever they run, most of them on nodes where no worker has room. Only the
books change by that, so nothing is planned. Of those who are alike in the books the cheapest are
taken first, so a set is so many of each kind; sets are asked about in the order of their cost.
Where that does not end in time, as where a quota is exceeded by many jobs, they are stopped one
after the other, the cheapest first, until it suffices.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

import numpy as np

from gpupack_core.queueing.candidates import Candidate, Candidates, Cost, cost_of, order
from gpupack_core.queueing.grounds import Grounds
from gpupack_core.queueing.trials import Found, Insufficient, is_below

QUESTIONS: Final = 512
"""Sets that are asked about in one search."""
EACH: Final = 64
"""Sets beside one that was refused; of one kind up to 64 jobs."""
ADDED: Final = 32
"""Jobs that are stopped one after the other."""
KINDS: Final = 16
"""Kinds of jobs, those of which somebody costs least."""


class Relief:
    """For one search."""

    def __init__(self, grounds: Grounds, candidates: Candidates) -> None:
        self._grounds, self._candidates = grounds, candidates
        self._left = QUESTIONS
        self._kinds: list[list[Candidate]] | None = None

    def of(self, refused: Insufficient, below: Found | None = None) -> Found | None:
        """With the cheapest of them beside the victims, if that costs less than what is known.

        The cheapest where the search ends in time; otherwise more may be stopped than are needed.
        """
        if not refused.ways or not self._left:
            return None
        kinds = self._beside(refused.victims)
        heap: list[tuple[Cost, tuple[int, ...]]] = [(cost_of(refused.victims), ())]
        most = max(self._left - EACH, 0)
        while heap and self._left > most:
            cost, numbers = heappop(heap)
            more = [kinds[kind][numbers[:at].count(kind)] for at, kind in enumerate(numbers)]
            victims = tuple(sorted((*refused.victims, *more), key=order))
            if not is_below(victims, below):
                return None
            if more:
                self._left -= 1
                found = self._allowed(victims, refused)
                if found is not None:
                    return found
                if not self._grounds.tolerate([one.running for one in victims]):
                    continue
            for kind in range(numbers[-1] if numbers else 0, len(kinds)):
                taken = numbers.count(kind)
                if taken < len(kinds[kind]):
                    dearer = kinds[kind][taken].cost
                    with_it = cost[0] + dearer[0], cost[1] + dearer[1], cost[2] + 1
                    heappush(heap, (with_it, (*numbers, kind)))
        return self._one_by_one(kinds, refused, below) if heap else None

    def _one_by_one(
        self, kinds: list[list[Candidate]], refused: Insufficient, below: Found | None
    ) -> Found | None:
        victims = refused.victims
        cheapest = sorted((one for kind in kinds for one in kind[:ADDED]), key=order)[:ADDED]
        for one in cheapest:
            more = tuple(sorted((*victims, one), key=order))
            if not is_below(more, below):
                return None
            if self._grounds.tolerate([other.running for other in more]):
                victims = more
                found = self._allowed(victims, refused)
                if found is not None:
                    return found
        return None

    def _allowed(self, victims: tuple[Candidate, ...], refused: Insufficient) -> Found | None:
        running = [one.running for one in victims]
        for places, charge in refused.ways:
            if self._grounds.allow(running, charge):
                return Found(victims, places, charge)
        return None

    def _beside(self, victims: Sequence[Candidate]) -> list[list[Candidate]]:
        """By kind, the cheapest first, without these."""
        if self._kinds is None:
            self._kinds = self._found()
        gone = {id(one) for one in victims}
        kinds = ([one for one in kind if id(one) not in gone] for kind in self._kinds)
        return [kind for kind in kinds if kind]

    def _found(self) -> list[list[Candidate]]:
        """More of each kind than are ever asked about beside a set, and spare ones for the set."""
        _, first = np.unique(self._candidates.kinds, return_index=True)
        found: list[list[Candidate]] = []
        for at in np.sort(first).tolist():
            if len(found) < KINDS and self._grounds.relieves(self._candidates[at].running):
                alike = np.flatnonzero(self._candidates.kinds == self._candidates.kinds[at])
                found.append([self._candidates[of] for of in alike[: 2 * EACH].tolist()])
        return found
