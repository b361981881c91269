# SPDX-License-Identifier: Apache-2.0
"""What GPUJobs show of their attempts: properties of running ones, durations of ended ones.

Nothing is stored: after a start the API still has running jobs, and those that ended recently.
"""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from gpupack_crds.gpujob_status import RunLimit
from gpupack_queue import DurationEstimates, JobId, Queue, RunningJob, Tenant, common_name
from gpupack_scheduler.ledger.claims import PodClaim
from gpupack_scheduler.ledger.jobs import Jobs, ShownJob
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.queueing.pending.request import job_id, limited
from gpupack_scheduler.queueing.running import holders

_ENDED: Final = "Succeeded"
"""The outcome of an attempt that completed its work. Others would have taken longer."""

SAME_DEADLINE_SECONDS: Final = 5.0
"""Difference up to which two deadlines of a job are the same one."""


class LearnedDurations:
    """The durations of the GPUJobs that the watch shows."""

    def __init__(self, jobs: Jobs, *, counts: bool) -> None:
        """Follow the jobs; if `counts` is False nothing is learned."""
        self._jobs, self._counts = jobs, counts
        self._durations = DurationEstimates()
        self._learned: dict[str, int] = {}
        """Number of the last learned attempt, by UID of the job."""

    def estimate(self, attempt: AttemptKey) -> float | None:
        """Return the seconds that few jobs of its name exceed; None if too few have ended."""
        return self._durations.estimate(Tenant(attempt.namespace), common_name(attempt.job))

    def see(self, uids: Collection[str]) -> None:
        """Learn from changed jobs; each attempt counts once."""
        if not self._counts:
            return
        for uid in sorted(uids):
            shown = self._jobs.shown(uid)
            if shown is None:
                self._learned.pop(uid, None)
                continue
            for tried in sorted(shown.attempts, key=lambda each: each.number):
                seconds = tried.seconds
                if seconds is None or tried.number <= self._learned.get(uid, 0):
                    continue
                self._learned[uid] = tried.number
                self._durations.learn(
                    Tenant(shown.attempt.namespace),
                    common_name(shown.attempt.job),
                    seconds,
                    completed=tried.outcome == _ENDED,
                )


class RunningUpdates:
    """Properties of running jobs that change while they run.

    Args:
        ledger: the GPUJobs from the watch.
        queue: the queue with the running jobs.
        attempts: the attempts that run.
        observed: resources that are observed.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: Queue,
        attempts: Mapping[JobId, AttemptKey],
        observed: Collection[str],
    ) -> None:
        self._ledger, self._queue = ledger, queue
        self._attempts, self._observed = attempts, observed

    def see_jobs(self, uids: Collection[str], now: float) -> None:
        """Update the running attempts of changed GPUJobs.

        The start in the status also counts for jobs admitted here, since others know only that.
        """
        for shown, running in self._current(uids):
            job, saved = running.job.id, shown.checkpointed_at
            self.see_began(job, began(self._ledger, shown.attempt), now)
            self._see_deadline_of(shown, now)
            self._see_movable(shown, now)
            self.see_checkpoint(job, saved.timestamp() if saved else None, now)

    def see_pod(self, job: JobId, pod: PodClaim, now: float) -> None:
        """Update a standalone pod; the kubelet counts its deadline from its start."""
        self.see_checkpoint(job, pod.checkpointed, now)
        running = self._queue.state.running.get(job)
        if running is None or pod.begun is None or pod.duration is None or pod.duration == math.inf:
            return
        self._see_deadline(running, pod.begun + pod.duration, now)

    def see_run_limit(self, job: JobId, limit: RunLimit | None, now: float) -> None:
        """Use the maximum run time of a standalone pod."""
        running = self._queue.state.running.get(job)
        if running is None:
            return
        found = limited(running.job, limit)
        if found != running.job:
            self._queue.update_running(found, running.placements, self._ledger.cluster, now)

    def see_began(self, job: JobId, since: float | None, now: float) -> None:
        """Correct the start of a running job; None: it is not known."""
        running = self._queue.state.running.get(job)
        if running is not None and since is not None and min(since, now) != running.started:
            self._queue.correct_start(job, min(since, now))

    def _current(self, uids: Collection[str]) -> Iterator[tuple[ShownJob, RunningJob]]:
        """Yield the GPUJobs of these UIDs whose current attempt runs, each with its running job."""
        for uid in uids:
            shown = self._ledger.jobs.shown(uid)
            running = shown and self._queue.state.running.get(job_id(shown.attempt))
            if shown and running and self._attempts.get(running.job.id) == shown.attempt:
                yield shown, running

    def see_checkpoint(self, job: JobId, at: float | None, now: float) -> None:
        """Record the checkpoint; one in the future counts as now."""
        running = self._queue.state.running.get(job)
        at = None if at is None else min(at, now)
        if running is not None and at != running.checkpointed:
            self._queue.record_checkpoint(job, at)

    def _see_deadline_of(self, shown: ShownJob, now: float) -> None:
        running = self._queue.state.running.get(job_id(shown.attempt))
        if running is not None and not shown.has_ended:
            ends = shown.ends_at
            self._see_deadline(running, ends.timestamp() if ends else math.inf, now)

    def _see_deadline(self, running: RunningJob, until: float, now: float) -> None:
        """Record when a running job ends at the latest, if it changed; infinity: no deadline."""
        expected = running.latest_end
        if until == expected or abs(until - expected) < SAME_DEADLINE_SECONDS:
            return
        duration = None if until == math.inf else max(until - running.started, 1.0)
        job = dataclasses.replace(running.job, duration=duration)
        self._queue.update_running(job, running.placements, self._ledger.cluster, now)

    def _see_movable(self, shown: ShownJob, now: float) -> None:
        """Update whether a running job may move, which can change while it runs."""
        running = self._queue.state.running.get(job_id(shown.attempt))
        if running is None or running.job.movable == (shown.movable is not None):
            return
        found = holders.gang_job(
            shown.attempt, running.placements, shown, None, observed=self._observed
        )
        if running.job.movable != found.movable:
            job = dataclasses.replace(running.job, movable=found.movable)
            if found.movable:
                seconds = found.model_fallback_seconds
                job = dataclasses.replace(job, gang=found.gang, model_fallback_seconds=seconds)
            self._queue.update_running(job, running.placements, self._ledger.cluster, now)


def current_attempt(ledger: Ledger, attempt: AttemptKey) -> ShownJob | None:
    """Return what the watch shows of an attempt, if it is the job's current one."""
    shown = ledger.jobs.shown(attempt.job_uid)
    return shown if shown and shown.attempt == attempt else None


def began(ledger: Ledger, attempt: AttemptKey) -> float | None:
    """Return the start of a job's current attempt, seconds since the epoch; None: unknown."""
    current = current_attempt(ledger, attempt)
    at = current.started_at if current else None
    return at.timestamp() if at else None
