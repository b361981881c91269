# SPDX-License-Identifier: Apache-2.0
"""Sets of candidates in the order of cost, if they can free enough and may be preempted.

    (.., n) ─┬─► (.., n, n + 1)    if the set may be preempted, so that a larger one may be, too
             └─► (.., n + 1)

Candidates are in the order of their cost, so neither successor is cheaper, and each set follows
from exactly one other. A set is in the heap under a lower bound of the cost of all sets that follow
from it and free enough: the missing amount, taken from the candidates that lose least for it, the
last one in part. Where nothing is missing, that is the cost of the set itself. A set from which no
sufficient set can follow is not put into the heap. This is a branch and bound search of a covering
problem.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from typing import Final

from gpupack_queue.running.candidates import Candidate, Cost, cost_of

Subset = tuple[Candidate, ...]

_ROUNDING: Final = 1 - 1e-12
"""A factor for rounding errors in the sum of a bound."""


class CandidateSets:
    """The sets of these candidates, which are in the order of their cost.

    Args:
        candidates: the elements of the sets.
        frees: how much each of them frees.
        missing: how much a set has to free; 0: any set suffices.
        may_grow: False: neither this set nor a larger one may be preempted.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        frees: Sequence[int],
        missing: int,
        may_grow: Callable[[Subset], bool],
    ) -> None:
        self._candidates, self._frees, self._missing = candidates, frees, missing
        self._may_grow = may_grow
        self._following = [*list(accumulate(reversed(frees)))[::-1], 0]
        numbers = [n for n, freed in enumerate(frees) if freed]
        self._by_density = sorted(numbers, key=lambda n: (candidates[n].cost[0] / frees[n], n))
        self._heap: list[tuple[Cost, tuple[int, ...], bool]] = []

    def cheapest_first(self) -> Iterator[Subset | None]:
        """Yield the sets that free enough and may be preempted; None stands for a step between."""
        if self._candidates:
            self._push((0,))
        while self._heap:
            _, numbers, is_found = heappop(self._heap)
            subset = tuple(self._candidates[number] for number in numbers)
            if is_found:
                yield subset
                continue
            yield None
            following = numbers[-1] + 1
            if following < len(self._candidates):
                self._push((*numbers[:-1], following))
            if not self._may_grow(subset):
                continue
            if sum(self._frees[number] for number in numbers) >= self._missing:
                heappush(self._heap, (cost_of(subset), numbers, True))
            if following < len(self._candidates):
                self._push((*numbers, following))

    def _push(self, numbers: tuple[int, ...]) -> None:
        """Put a set into the heap, under a lower bound of the cost of sufficient sets from it."""
        *before, last = numbers
        missing = self._missing - sum(self._frees[number] for number in before)
        if self._following[last] < missing:
            return
        lost, milli, jobs = cost_of([self._candidates[number] for number in before])
        least = max(
            self._candidates[last].cost[0], self._fractional_cost(missing, last) * _ROUNDING
        )
        heappush(self._heap, ((lost + least, milli, jobs), numbers, False))

    def _fractional_cost(self, missing: int, first: int) -> float:
        """Return the cost to free so much with the candidates from `first` on, the last in part."""
        total = 0.0
        for number in self._by_density:
            if missing <= 0:
                break
            if number >= first:
                lost, freed = self._candidates[number].cost[0], self._frees[number]
                total += lost * min(freed, missing) / freed
                missing -= freed
        return total
