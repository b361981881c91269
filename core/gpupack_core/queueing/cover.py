# SPDX-License-Identifier: Apache-2.0
"""The search for the cheapest set of candidates whose end makes space, in the order of cost.

It is exact where it finishes within its bounds, as for a few candidates. Otherwise the cheapest
candidates are taken until they suffice, and each of them that is not needed is spared.
"""

from collections.abc import Callable, Sequence
from typing import Final

from gpupack_core.queueing.candidates import Candidate, order
from gpupack_core.queueing.grounds import Grounds
from gpupack_core.queueing.relief import Relief
from gpupack_core.queueing.sets import Sets, Subset
from gpupack_core.queueing.trials import Found, Insufficient, Trials, is_below
from gpupack_core.serving import seen_for

TRIALS: Final = 512
"""The maximum number of plans in one exact search; nine candidates have 511 sets."""
SETS: Final = 8192
"""The maximum number of steps in one exact search."""


class Cover:
    """Exact search for one job, on the cluster of its trials."""

    def __init__(self, trials: Trials, grounds: Grounds, relief: Relief) -> None:
        self._trials, self._grounds, self._relief = trials, grounds, relief

    def cheapest(
        self,
        candidates: Sequence[Candidate],
        *,
        row: int | None = None,
        frees: Sequence[int] = (),
        below: Found | None = None,
    ) -> Found | None:
        """Return the cheapest set, searched in the order of cost; None: none, or none cheaper.

        Args:
            candidates: the elements of the sets.
            row: where they have to make space; None: anywhere.
            frees: what each of them frees there.
            below: a set that is known to suffice; only cheaper ones are returned.
        """
        trials, best = 0, below
        sets = self.sets(candidates, row, frees, workers=1, may_grow=self._may_be_stopped)
        for number, subset in enumerate(sets.cheapest_first()):
            if trials >= TRIALS or number >= SETS:
                found = self._enough(candidates)
                return found if found and is_below(found.victims, best) else _new(best, below)
            if subset is None:
                continue
            if not is_below(subset, best):
                break
            trials += 1
            trial = self._trials.of(subset)
            if isinstance(trial, Found):
                return trial
            best = self.relieved(trial, best) or best
        return _new(best, below)

    def relieved(self, refused: Insufficient, below: Found | None) -> Found | None:
        """Return a larger set that the quota allows, without unneeded victims; None: none."""
        found = self._relief.of(refused, below)
        return None if found is None else self._trials.sparing(found)

    def sets(
        self,
        candidates: Sequence[Candidate],
        row: int | None,
        frees: Sequence[int],
        *,
        workers: int,
        may_grow: Callable[[Subset], bool] = bool,
    ) -> Sets:
        """Return the sets that free enough for this many workers on the row.

        What is free on the row already counts. Without a row every set qualifies.
        """
        if row is None:
            return Sets(candidates, [0] * len(candidates), 0, may_grow)
        request = self._trials.gang.request
        free = int(seen_for(self._trials.cluster, request).free_gpu_milli[row])
        missing = workers * request.milli - free
        return Sets(candidates, frees, missing, may_grow)

    def _may_be_stopped(self, subset: Subset) -> bool:
        return self._grounds.tolerate([one.running for one in subset])

    def _enough(self, candidates: Sequence[Candidate]) -> Found | None:
        """Try the cheapest 1, 2, 4, … that may be preempted together; spare those not needed."""
        chosen: list[Candidate] = []
        tried = 1
        for one in sorted(candidates, key=order):
            if self._may_be_stopped((*chosen, one)):
                chosen.append(one)
            if len(chosen) == tried:
                tried *= 2
                trial = self._trials.of(chosen)
                if isinstance(trial, Found):
                    return self._trials.sparing(trial)
        trial = self._trials.of(chosen)
        return self._trials.sparing(trial) if isinstance(trial, Found) else None


def _new(best: Found | None, below: Found | None) -> Found | None:
    """Return what was found, or None if it was known before."""
    return None if best is below else best
