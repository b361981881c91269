# SPDX-License-Identifier: Apache-2.0
"""The search for the cheapest set of candidates whose end makes space, in the order of cost.

It is exact where it finishes within its bounds, as for a few candidates. Otherwise the cheapest
candidates are taken until they suffice, and each of them that is not needed is spared.
"""

from collections.abc import Callable, Sequence
from typing import Final

from gpupack_placement.request import Role
from gpupack_placement.serving import view_for
from gpupack_queue.preemption.additional_victims import AdditionalVictims
from gpupack_queue.preemption.candidate_sets import CandidateSets, Subset
from gpupack_queue.preemption.policies import PreemptionPolicy
from gpupack_queue.preemption.victim_check import (
    InsufficientVictims,
    VictimCheck,
    VictimSet,
    is_cheaper,
)
from gpupack_queue.running.candidates import Candidate, cost_key

MAX_PLANS: Final = 512
"""The maximum number of plans in one exact search; nine candidates have 511 sets."""
MAX_STEPS: Final = 8192
"""The maximum number of steps in one exact search."""


class ExactSearch:
    """Exact search for one job, on the overlay of its victim check."""

    def __init__(
        self, check: VictimCheck, policy: PreemptionPolicy, additional: AdditionalVictims
    ) -> None:
        self._check, self._policy, self._additional = check, policy, additional

    def find_cheapest(
        self,
        candidates: Sequence[Candidate],
        *,
        row: int | None = None,
        freed: Sequence[int] = (),
        below: VictimSet | None = None,
    ) -> VictimSet | None:
        """Return the cheapest set, searched in the order of cost; None: none, or none cheaper.

        Args:
            candidates: the elements of the sets.
            row: where they have to make space for the only worker; None: anywhere.
            freed: what each of them freed there.
            below: a set that is known to suffice; only cheaper ones are returned.
        """
        plans, best = 0, below
        role = self._check.gang.roles[0]
        sets = self.sets(candidates, row, freed, role, workers=1, may_grow=self._may_preempt)
        for number, subset in enumerate(sets.cheapest_first()):
            if plans >= MAX_PLANS or number >= MAX_STEPS:
                found = self._find_sufficient(candidates)
                return (
                    found
                    if found and is_cheaper(found.victims, best)
                    else _unless_known(best, below)
                )
            if subset is None:
                continue
            if not is_cheaper(subset, best):
                break
            plans += 1
            result = self._check.check(subset)
            if isinstance(result, VictimSet):
                return result
            best = self.with_additional_victims(result, best) or best
        return _unless_known(best, below)

    def with_additional_victims(
        self, refused: InsufficientVictims, below: VictimSet | None
    ) -> VictimSet | None:
        """Return a larger set that the quota allows, without unneeded victims; None: none."""
        found = self._additional.find(refused, below)
        return None if found is None else self._check.spare_unneeded(found)

    def sets(
        self,
        candidates: Sequence[Candidate],
        row: int | None,
        freed: Sequence[int],
        role: Role,
        *,
        workers: int,
        may_grow: Callable[[Subset], bool] = bool,
    ) -> CandidateSets:
        """Return the sets that free enough for this many workers of a role on the row.

        What is free on the row already counts. Without a row every set qualifies.
        """
        if row is None:
            return CandidateSets(candidates, [0] * len(candidates), 0, may_grow)
        request = role.request
        free = int(view_for(self._check.cluster, request).free_gpu_milli[row])
        missing = workers * request.milli - free
        return CandidateSets(candidates, freed, missing, may_grow)

    def _may_preempt(self, subset: Subset) -> bool:
        return self._policy.may_preempt_together([one.running for one in subset])

    def _find_sufficient(self, candidates: Sequence[Candidate]) -> VictimSet | None:
        """Try the cheapest 1, 2, 4, … that may be preempted together; spare those not needed."""
        chosen: list[Candidate] = []
        tried = 1
        for one in sorted(candidates, key=cost_key):
            if self._may_preempt((*chosen, one)):
                chosen.append(one)
            if len(chosen) == tried:
                tried *= 2
                result = self._check.check(chosen)
                if isinstance(result, VictimSet):
                    return self._check.spare_unneeded(result)
        result = self._check.check(chosen)
        return self._check.spare_unneeded(result) if isinstance(result, VictimSet) else None


def _unless_known(best: VictimSet | None, below: VictimSet | None) -> VictimSet | None:
    """Return what was found, or None if it was known before."""
    return None if best is below else best
