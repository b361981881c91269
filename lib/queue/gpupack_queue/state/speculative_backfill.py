# SPDX-License-Identifier: Apache-2.0
"""The jobs that were speculatively backfilled before each queue head."""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from gpupack_queue.job import JobId

MAX_DELAYS: Final = 10_000


@dataclass(slots=True)
class SpeculativeBackfills:
    """The backfilled jobs by queue head: running, or admitted and not known to run; mutable."""

    _by_head: dict[JobId, dict[JobId, None]] = field(default_factory=dict)
    _heads_by_job: dict[JobId, set[JobId]] = field(default_factory=dict)
    delayed_since: dict[JobId, float] = field(default_factory=dict)
    """The time since which each head would fit without the jobs that were backfilled before it."""
    delays_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_DELAYS))
    """The seconds that each of these heads waited from then until its start."""
    checked_at_release: dict[JobId, int] = field(default_factory=dict)
    """The number of releases at which a head last did not fit without these jobs."""

    def copy(self) -> "SpeculativeBackfills":
        """Return an independent copy."""
        return SpeculativeBackfills(
            {head: jobs.copy() for head, jobs in self._by_head.items()},
            {job: heads.copy() for job, heads in self._heads_by_job.items()},
            self.delayed_since.copy(),
            self.delays_seconds.copy(),
            self.checked_at_release.copy(),
        )

    def jobs_before(self, head: JobId) -> Collection[JobId]:
        """Return the jobs that were backfilled before the head, in the order of their admission."""
        return self._by_head.get(head, {}).keys()

    def __contains__(self, job: object) -> bool:
        """Tell whether the job was backfilled before a head that still waits."""
        return job in self._heads_by_job

    def add(self, job: JobId, heads: Iterable[JobId]) -> None:
        """Record that a job was admitted before these heads."""
        for head in heads:
            self._by_head.setdefault(head, {})[job] = None
            self._heads_by_job.setdefault(job, set()).add(head)

    def remove(self, job: JobId) -> None:
        """Remove a backfilled job that has ended, or was not admitted after all."""
        for head in self._heads_by_job.pop(job, ()):
            self._by_head[head].pop(job)
            if not self._by_head[head]:
                self.forget_head(head)

    def record_head_start(self, head: JobId, now: float) -> None:
        """Record that a head runs, and how long the backfilled jobs delayed it."""
        since = self.delayed_since.get(head)
        if since is not None:
            self.delays_seconds.append(now - since)
        self.forget_head(head)

    def forget_head(self, head: JobId) -> None:
        """Forget a head that no longer waits, or before which no backfilled job is left."""
        self.delayed_since.pop(head, None)
        self.checked_at_release.pop(head, None)
        for job in self._by_head.pop(head, ()):
            self._heads_by_job[job].discard(head)
            if not self._heads_by_job[job]:
                del self._heads_by_job[job]
