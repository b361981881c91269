# SPDX-License-Identifier: Apache-2.0
"""The cheapest of some candidates whose end makes room, through all their sets by cost.

Exact where that ends in time, which small numbers do. Otherwise so many of the cheapest are
stopped that it suffices, and of these all are spared without whom it does, too.
"""

from collections.abc import Callable, Sequence
from typing import Final

from gpupack_core.queueing.candidates import Candidate, cost_of, order
from gpupack_core.queueing.job import Running
from gpupack_core.queueing.sets import Sets, Subset
from gpupack_core.queueing.trials import Found, Trials

TRIALS: Final = 512
"""Plans in one exact search; sets of nine candidates are 511."""
SETS: Final = 8192
"""Steps in one."""


class Cover:
    """For one gang, on the cluster of its trials."""

    def __init__(self, trials: Trials, tolerate: Callable[[Sequence[Running]], bool]) -> None:
        self._trials, self._tolerate = trials, tolerate

    def cheapest(
        self,
        candidates: Sequence[Candidate],
        *,
        row: int | None = None,
        frees: Sequence[int] = (),
        below: Found | None = None,
    ) -> Found | None:
        """Through all sets by cost.

        Args:
            candidates: of whom sets are made.
            row: where they have to make room; None: anywhere.
            frees: what each of them has there.
            below: a set that is known to do; dearer ones are of no interest.
        """
        trials = 0
        sets = self.sets(candidates, row, frees, workers=1, may_grow=self._may_be_stopped)
        for number, subset in enumerate(sets.cheapest_first()):
            if trials >= TRIALS or number >= SETS:
                break
            if subset is None:
                continue
            if not is_below(subset, below):
                return None
            trials += 1
            found = self._trials.of(subset)
            if found is not None:
                return found
        else:
            return None
        found = self._enough(candidates)
        return found if found is None or is_below(found.victims, below) else None

    def sets(
        self,
        candidates: Sequence[Candidate],
        row: int | None,
        frees: Sequence[int],
        *,
        workers: int,
        may_grow: Callable[[Subset], bool] = bool,
    ) -> Sets:
        """Those who with what is free on the row are enough for so many workers there."""
        if row is None:
            return Sets(candidates, [0] * len(candidates), 0, may_grow)
        free = int(self._trials.cluster.arrays.free_gpu_milli[row])
        missing = workers * self._trials.gang.request.milli - free
        return Sets(candidates, frees, missing, may_grow)

    def _may_be_stopped(self, subset: Subset) -> bool:
        return self._tolerate([one.running for one in subset])

    def _enough(self, candidates: Sequence[Candidate]) -> Found | None:
        """The cheapest 1, 2, 4, … that may go together, and of these no more than are needed."""
        chosen: list[Candidate] = []
        tried = 1
        for one in sorted(candidates, key=order):
            if self._tolerate([other.running for other in (*chosen, one)]):
                chosen.append(one)
            if len(chosen) == tried:
                tried *= 2
                if self._trials.of(chosen) is not None:
                    return self._trials.sparing(chosen)
        return self._trials.sparing(chosen)


def is_below(subset: Sequence[Candidate], known: Found | None) -> bool:
    """Whether it costs less."""
    return known is None or cost_of(subset) < cost_of(known.victims)
