# SPDX-License-Identifier: Apache-2.0
"""What GPUJobs may say and become: rules of the outside watcher about their lives."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from storm_views import SeenJob, SeenPod

BIND_SECONDS = 60.0
"""The operator's bind timeout (bindTimeoutSeconds), and so many workers have a second more."""
BIND_WORKERS_PER_SECOND = 10
NOT_COUNTED = {"Infrastructure", "Moved", "Preempted", "Suspended"}
"""Outcomes that cost no restart."""
KEPT = 20
"""Attempts that a status remembers."""


class WholeGangs:
    """All workers of an attempt that start together have places and get nodes in time, or it ends.

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
            self._bound[after.job_uid, after.attempt] |= after.workers

    def job(self, job: SeenJob) -> Iterator[str]:
        """A GPUJob changed."""
        if len(job.running) > 1:
            numbers = [attempt.number for attempt in job.running]
            yield f"{job.key} has attempts {numbers} at once by its status"
        workers, gpus = job.placed
        if workers and job.phase in {"Admitted", "Running"}:
            if not set(range(job.least)) <= set(workers) <= set(range(job.workers)):
                yield f"{job.key} has places for workers {list(workers)} of {job.workers}"
            elif gpus != len(workers) * job.gpus:
                yield f"{job.key} has {gpus} GPUs for {len(workers)} workers of {job.gpus}"

    def tick(self, jobs: Mapping[str, SeenJob], at: float) -> Iterator[str]:
        """Time passed."""
        for job in jobs.values():
            for attempt in () if job.has_ended else job.running:
                indices = self._bound.get((job.uid, attempt.number), set())
                bound = len(indices & set(range(job.least)))
                patience = BIND_SECONDS + job.workers / BIND_WORKERS_PER_SECOND + self._slack
                if 0 < bound < job.least and at > attempt.started + patience:
                    name = f"attempt {attempt.number} of {job.key}"
                    yield f"{name} has nodes for {bound} of {job.least} for too long"


class NothingLost:
    """No GPUJob is lost, none changes after its end, and none has more attempts than allowed.

    Args:
        deletable: keys of the jobs that the storm deletes.
    """

    def __init__(self, deletable: frozenset[str]) -> None:
        self._deletable = deletable

    def job(self, before: SeenJob | None, after: SeenJob | None) -> Iterator[str]:
        """A GPUJob changed."""
        if after is None:
            if before and before.key not in self._deletable:
                yield f"{before.key} is gone, and no user deleted it"
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
