# SPDX-License-Identifier: Apache-2.0
"""How long GPUJobs took, by namespace and name, from the attempts that their statuses tell of.

Nothing is stored: after a start the API still has those that ended lately.
"""

from collections.abc import Collection
from typing import Final

from gpupack_core.queueing import Durations, Tenant, kind_of
from gpupack_scheduling.ledger.jobs import Jobs
from gpupack_scheduling.ledger.workers import AttemptKey

_ENDED: Final = "Succeeded"
"""The outcome of an attempt that did what it was to do; the others would have taken longer."""


class LearnedDurations:
    """Of what the watch shows."""

    def __init__(self, jobs: Jobs, *, counts: bool) -> None:
        """`counts` False: nothing is learned."""
        self._jobs, self._counts = jobs, counts
        self._durations = Durations()
        self._learned: dict[str, int] = {}
        """By UID, up to which attempt."""

    def estimate(self, attempt: AttemptKey) -> float | None:
        """Seconds that hardly any job of its name took longer than; None: too few have ended."""
        return self._durations.estimate(Tenant(attempt.namespace), kind_of(attempt.job))

    def see(self, uids: Collection[str]) -> None:
        """These have changed; each attempt counts once."""
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
                    kind_of(shown.attempt.job),
                    seconds,
                    ended=tried.outcome == _ENDED,
                )
