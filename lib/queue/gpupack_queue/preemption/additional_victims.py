# SPDX-License-Identifier: Apache-2.0
"""Additional victims, so that the quota allows a placement for which others make space.

A job for which space is made can still be refused: its quota is used up, or its tenant would be
left with a larger share than the victims' tenant. Then other jobs that count against the same
quotas can be preempted with the victims, wherever they run, most of them on nodes where no worker
fits. That changes only the quota usage, so nothing is planned. Only jobs that hold some of the keys
that the preemptor would use help. Among jobs that are alike in quota usage the cheapest are taken
first, so a set is a number of each kind. Sets are evaluated in the order of their cost. Where that
does not end in time, as where many jobs exceed a quota, jobs are added one after another until they
suffice: the cheapest first, and if that fails, those of the preemptor's own tenant first, whose end
never harms it.

No evaluation is spent on what the quota would refuse if all candidates were preempted, nor on
victims that are alike in quota usage to earlier ones for which the search failed.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Final

import numpy as np

from gpupack_queue.charge import Charge, ModelKey
from gpupack_queue.job import RunningJob, Tenant
from gpupack_queue.preemption.policies import PreemptionPolicy
from gpupack_queue.preemption.victim_check import InsufficientVictims, VictimSet, is_cheaper
from gpupack_queue.running.candidates import Candidate, Candidates, Cost, cost_key, cost_of

MAX_EVALUATIONS: Final = 512
"""The maximum number of sets that are evaluated in one search."""
MAX_SETS_PER_REFUSAL: Final = 64
"""The maximum number of sets per refused set, and half the number of jobs kept per kind."""
MAX_ADDED: Final = 32
"""The maximum number of jobs that are added one after another."""
MAX_KINDS: Final = 16
"""The maximum number of kinds of jobs: those with the cheapest jobs."""

_Counted = frozenset[tuple[ModelKey, int]]
_UsageKey = tuple[tuple[Tenant, tuple[tuple[ModelKey, int], ...]], ...]


class AdditionalVictims:
    """The additional victims of one search."""

    def __init__(self, policy: PreemptionPolicy, candidates: Candidates) -> None:
        self._policy, self._candidates = policy, candidates
        self._evaluations_left = MAX_EVALUATIONS
        self._samples: list[tuple[int, RunningJob, int]] | None = None
        self._kinds: dict[frozenset[ModelKey], list[list[Candidate]]] = {}
        self._fits_quota: dict[_Counted, bool] = {}
        self._failed: set[tuple[_Counted, _UsageKey]] = set()

    def find(
        self, refused: InsufficientVictims, below: VictimSet | None = None
    ) -> VictimSet | None:
        """Return the victims with the cheapest additional ones; None: none below `below`.

        It is the cheapest set where the search ends in time. Otherwise it may have more victims
        than are needed.
        """
        best, counted = below, set[_Counted]()
        for places, charge in refused.placements:
            counts = frozenset(charge.items())
            if counts not in counted:
                counted.add(counts)
                best = (
                    self._with_additional(VictimSet(refused.victims, places, charge), best) or best
                )
        return None if best is below else best

    def _with_additional(self, base: VictimSet, below: VictimSet | None) -> VictimSet | None:
        """Return a set that the quota usage permits, from one for which only this is missing."""
        key = frozenset(base.charge.items()), _usage_key(one.running for one in base.victims)
        if (
            not self._evaluations_left
            or key in self._failed
            or not self._may_fit_quota(base.charge)
        ):
            return None
        kinds = self._additional_by_kind(base)
        heap: list[tuple[Cost, tuple[int, ...]]] = [(cost_of(base.victims), ())]
        most = max(self._evaluations_left - MAX_SETS_PER_REFUSAL, 0)
        while heap and self._evaluations_left > most:
            cost, numbers = heappop(heap)
            more = [kinds[kind][numbers[:at].count(kind)] for at, kind in enumerate(numbers)]
            found = _with(base, more)
            if not is_cheaper(found.victims, below):
                return None
            if more:
                self._evaluations_left -= 1
                running = [one.running for one in found.victims]
                if self._policy.allows(running, base.charge):
                    return found
                if not self._policy.may_preempt_together(running):
                    continue
            for kind in range(numbers[-1] if numbers else 0, len(kinds)):
                taken = numbers.count(kind)
                if taken < len(kinds[kind]):
                    dearer = kinds[kind][taken].cost
                    with_it = cost[0] + dearer[0], cost[1] + dearer[1], cost[2] + 1
                    heappush(heap, (with_it, (*numbers, kind)))
        at_last = self._one_by_one(kinds, base, below) if heap else None
        if at_last is None:
            self._failed.add(key)
        return at_last

    def _one_by_one(
        self, kinds: list[list[Candidate]], base: VictimSet, below: VictimSet | None
    ) -> VictimSet | None:
        several = [one for kind in kinds for one in kind[:MAX_ADDED]]
        cheapest = sorted(several, key=cost_key)
        ours_first = sorted(cheapest, key=self._is_of_other_tenant)
        for turns in (cheapest, ours_first):
            found = base
            for one in turns[:MAX_ADDED]:
                more = _with(found, (one,))
                if not is_cheaper(more.victims, below):
                    break
                running = [other.running for other in more.victims]
                if self._policy.allows(running, base.charge):
                    return more
                if self._policy.may_preempt_together(running):
                    found = more
        return None

    def _is_of_other_tenant(self, one: Candidate) -> bool:
        return one.running.job.tenant != self._policy.job.tenant

    def _may_fit_quota(self, charge: Charge) -> bool:
        """Tell whether the quota can allow it; False: not even if all candidates were preempted."""
        counts = frozenset(charge.items())
        known = self._fits_quota.get(counts)
        if known is None:
            all_gone = ((sample, jobs) for _, sample, jobs in self._sampled())
            known = self._fits_quota[counts] = self._policy.fits_quota_without(charge, all_gone)
        return known

    def _additional_by_kind(self, base: VictimSet) -> list[list[Candidate]]:
        """Return the additional candidates by kind, the cheapest first, without the victims."""
        keys = frozenset(key for key, milli in base.charge.items() if milli)
        found = self._kinds.get(keys)
        if found is None:
            found = self._kinds[keys] = self._found(keys)
        used = {id(one) for one in base.victims}
        kinds = ([one for one in kind if id(one) not in used] for kind in found)
        return [kind for kind in kinds if kind]

    def _found(self, keys: frozenset[ModelKey]) -> list[list[Candidate]]:
        """Return candidates by kind in quota usage: as many as are evaluated, and some to spare."""
        alike: dict[_UsageKey, list[int]] = {}
        for number, sample, _ in self._sampled():
            if self._policy.frees_quota_for(sample, keys):
                alike.setdefault(_usage_key((sample,)), []).append(number)
        found: list[list[Candidate]] = []
        for numbers in list(alike.values())[:MAX_KINDS]:
            these = np.flatnonzero(np.isin(self._candidates.kinds, numbers))
            found.append(
                [self._candidates[of] for of in these[: 2 * MAX_SETS_PER_REFUSAL].tolist()]
            )
        return found

    def _sampled(self) -> list[tuple[int, RunningJob, int]]:
        """Return each kind's number, cheapest job and job count, the kind of the cheapest first."""
        if self._samples is None:
            kinds, first, jobs = np.unique(
                self._candidates.kinds, return_index=True, return_counts=True
            )
            self._samples = [
                (int(kinds[at]), self._candidates[int(first[at])].running, int(jobs[at]))
                for at in np.argsort(first)
            ]
        return self._samples


def _with(base: VictimSet, more: Sequence[Candidate]) -> VictimSet:
    return VictimSet(tuple(sorted((*base.victims, *more), key=cost_key)), base.places, base.charge)


def _usage_key(jobs: Iterable[RunningJob]) -> _UsageKey:
    """Return a key that is equal for jobs that are alike in quota usage."""
    return tuple(sorted((one.job.tenant, tuple(sorted(one.charge.items()))) for one in jobs))
