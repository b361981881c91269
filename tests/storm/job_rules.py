# SPDX-License-Identifier: Apache-2.0
"""What GPUJobs may say and become: rules of the outside watcher about the queue's decisions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from storm_views import SeenJob, SeenPod

BIND_SECONDS = 60.0
"""The operator's bind timeout (bindTimeoutSeconds), and so many workers have a second more."""
BIND_WORKERS_PER_SECOND = 10
PREEMPTED = "Preempted"
NOT_COUNTED = {"Infrastructure", "Preempted", "Suspended"}
"""Outcomes that cost no restart."""
KEPT = 20
"""Attempts that a status remembers."""


class WholeGangs:
    """All workers of an attempt have places, and all get nodes in time, or the attempt ends.

    Args:
        slack_seconds: how much later than the bind timeout an attempt may end: its operator may
            just be dead, and the API server away.
    """

    def __init__(self, *, slack_seconds: float) -> None:
        self._slack = slack_seconds
        self._bound: dict[tuple[str, int], set[int]] = defaultdict(set)

    def pod(self, after: SeenPod | None) -> None:
        """A pod changed."""
        if after and after.job_uid and after.node:
            self._bound[after.job_uid, after.attempt].add(after.index)

    def job(self, job: SeenJob) -> Iterator[str]:
        """A GPUJob changed."""
        if len(job.running) > 1:
            numbers = [attempt.number for attempt in job.running]
            yield f"{job.key} has attempts {numbers} at once by its status"
        workers, gpus = job.placed
        if workers and job.phase in {"Admitted", "Running"}:
            if workers != tuple(range(job.workers)):
                yield f"{job.key} has places for workers {list(workers)} of {job.workers}"
            elif gpus != job.workers * job.gpus:
                yield f"{job.key} has {gpus} GPUs for {job.workers} workers of {job.gpus}"

    def tick(self, jobs: Mapping[str, SeenJob], at: float) -> Iterator[str]:
        """Time passed."""
        for job in jobs.values():
            for attempt in () if job.has_ended else job.running:
                bound = len(self._bound.get((job.uid, attempt.number), ()))
                patience = BIND_SECONDS + job.workers / BIND_WORKERS_PER_SECOND + self._slack
                if 0 < bound < job.workers and at > attempt.started + patience:
                    name = f"attempt {attempt.number} of {job.key}"
                    yield f"{name} has nodes for {bound} of {job.workers} for too long"


class FairPreemptions:
    """Who is stopped was named before in the status of who needs the place, with a right to it.

    A preemption that the watch could not show, as one that was written and done with while it was
    away, is counted and not judged.
    """

    def __init__(self) -> None:
        self.unseen = 0
        self.count = 0
        self._for: dict[str, set[str]] = defaultdict(set)
        """By attempt that is to end, UIDs of those for whom."""
        self._stopped: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()

    def job(self, job: SeenJob, jobs: Mapping[str, SeenJob], *, blind: bool) -> Iterator[str]:
        """A GPUJob changed; `blind`: what happened since it was last seen is not known."""
        for name in job.victims:
            if job.uid not in self._for[name]:
                self._for[name].add(job.uid)
                yield from self._named(job, jobs.get(name.partition("/")[0]))
        for attempt in job.attempts:
            name = f"{job.uid}/{attempt.number}"
            if attempt.outcome == PREEMPTED and name not in self._stopped:
                self._stopped.add(name)
                yield from self._ended(job, name, jobs, blind=blind)

    def _named(self, job: SeenJob, victim: SeenJob | None) -> Iterator[str]:
        if victim is None or victim.namespace != job.namespace:
            return
        if victim.priority >= job.priority:
            which = f"{victim.key} of priority {victim.priority}"
            yield f"{which} is to end for {job.key} of priority {job.priority}"

    def _ended(
        self, job: SeenJob, name: str, jobs: Mapping[str, SeenJob], *, blind: bool
    ) -> Iterator[str]:
        self.count += 1
        beneficiaries = self._for.get(name, set())
        if not beneficiaries and blind:
            self.unseen += 1
        elif not beneficiaries:
            yield f"{job.key} was stopped, and nobody's status names its attempt {name}"
        for other in beneficiaries:
            self._pairs.add((other, job.uid))
            if (job.uid, other) in self._pairs:
                whom = jobs[other].key if other in jobs else other
                yield f"{job.key} and {whom} were stopped for each other in turn"


class NothingLost:
    """GPUJobs stay, what has ended has ended, and nobody has more attempts than he may.

    Args:
        deletable: keys of those that somebody deletes.
    """

    def __init__(self, deletable: frozenset[str]) -> None:
        self._deletable = deletable

    def job(self, before: SeenJob | None, after: SeenJob | None) -> Iterator[str]:
        """A GPUJob changed."""
        if after is None:
            if before and before.key not in self._deletable:
                yield f"{before.key} is gone, and nobody deleted it"
            return
        if before and before.has_ended and after.phase != before.phase:
            yield f"{after.key} was {before.phase} and is {after.phase or 'nothing'}"
        if before and after.attempt < before.attempt:
            yield f"{after.key} was at attempt {before.attempt} and is at {after.attempt}"
        if after.restarts > after.max_restarts:
            yield f"{after.key} has restarted {after.restarts} of {after.max_restarts} times"
        if after.attempt <= KEPT:
            free = sum(each.outcome in NOT_COUNTED for each in after.attempts)
            if after.attempt > 1 + after.max_restarts + free:
                yield f"{after.key} has had {after.attempt} attempts, {free} of which are free"
