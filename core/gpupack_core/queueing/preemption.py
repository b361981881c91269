# SPDX-License-Identifier: Apache-2.0
"""For whom others are stopped: seek victims, and decide where the job goes once they have ended."""

from dataclasses import dataclass
from math import inf

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.decisions import Preempt, Victim
from gpupack_core.queueing.grounds import Grounds
from gpupack_core.queueing.job import Job, Running
from gpupack_core.queueing.search import Search
from gpupack_core.queueing.sheet import Sheet
from gpupack_core.queueing.state import State
from gpupack_core.queueing.trials import Found
from gpupack_core.queueing.waiting import Entry
from gpupack_core.queueing.within import WithinQuota
from gpupack_core.units import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class Preemption:
    """The decision, and what it means in the books."""

    decision: Preempt
    stopped: tuple[Running, ...]
    charge: Charge


class Preemptor:
    """Belongs to one cycle."""

    def __init__(self, state: State, sheet: Sheet, within: WithinQuota, now: float) -> None:
        self._state, self._sheet, self._within, self._now = state, sheet, within, now
        self._rules = state.books.rules.preemption
        self._searches, self._most = 0, 0 if state.foresees_next else self._rules.searches
        self._stopping = state.stopping() | state.stuck
        self.look_at = inf
        """When a search could find what it does not find now."""

    @property
    def has_searched(self) -> bool:
        """In this cycle."""
        return self._searches > 0

    def seek(self, entry: Entry) -> Preemption | None:
        """Victims for the job, at the least cost that is found."""
        if not (self._rules.any and entry.job.preempts and self._may_search(entry)):
            return None
        self._searches += 1
        job, cluster = entry.job, self._sheet.cluster
        keys = frozenset(self._state.books.keys.allowed(cluster, job.gang.request))
        grounds = Grounds(self._state.books, job, keys, relieved=self._stops_own(job))
        found = self._search(grounds, cluster)
        if found is None:
            entry.lane.searched = self._now
            return None
        stopped = tuple(one.running for one in found.victims)
        self._stopping |= {running.job.id for running in stopped}
        victims = tuple(
            Victim(
                running.job.id,
                grounds.ground(running, stopped, found.charge),
                running.lost(self._now) / WHOLE_GPU,
            )
            for running in stopped
        )
        return Preemption(Preempt(job.id, victims, found.places), stopped, found.charge)

    def _may_search(self, entry: Entry) -> bool:
        """Not twice at one instant, however short a time is to pass in between."""
        searched = entry.lane.searched
        if searched is not None:
            due = searched + self._rules.retry
            if due > self._now:
                self.look_at = min(self.look_at, due)
            if due > self._now or searched >= self._now:
                return False
        if self._searches >= self._most:
            self.look_at = self._now
            return False
        return True

    def _search(self, grounds: Grounds, cluster: Cluster) -> Found | None:
        protected = self._protected(grounds)
        if not protected:
            return None
        census = self._state.running.census
        candidates, later = census.candidates(protected, self._now, self._stopping)
        self.look_at = min(self.look_at, later)
        if not candidates:
            return None
        search = Search(grounds, candidates, cluster, self._within)
        return search.run(anywhere=self._within.plan(cluster, grounds.job) is not None)

    def _stops_own(self, job: Job) -> bool:
        own = self._state.running.of(job.tenant) if self._rules.priority else ()
        return any(running.job.priority < job.priority for running in own)

    def _protected(self, grounds: Grounds) -> dict[int, float]:
        """The kinds of jobs that could be stopped now or later: each for how long it is not."""
        return {
            number: self._state.books.min_runtime(tenant)
            for tenant, kinds in self._state.running.census.kinds()
            if grounds.against(tenant)
            for number, sample in kinds.items()
            if grounds.against_job(sample) and grounds.tolerate_one(sample)
        }
