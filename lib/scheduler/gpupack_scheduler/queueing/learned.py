# SPDX-License-Identifier: Apache-2.0
"""Learned durations of GPUJobs by namespace and name, from the attempts in their statuses.

Nothing is stored: after a start the API still has the jobs that ended recently.
"""

from collections.abc import Collection
from typing import Final

from gpupack_queue import DurationEstimates, Tenant, common_name
from gpupack_scheduler.ledger.jobs import Jobs
from gpupack_scheduler.ledger.workers import AttemptKey

_ENDED: Final = "Succeeded"
"""The outcome of an attempt that completed its work. Others would have taken longer."""


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
