# SPDX-License-Identifier: Apache-2.0
"""The queue heads of one cycle: the jobs that may have a backfill reservation.

The maximum counts reservations, not heads. A head for which nothing can be reserved leaves its
turn to the next one, but only so often for one tenant: each such head costs a search, and no job
passes the heads before the search.
"""

from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import Final

from gpupack_queue.job import Job, JobId, Tenant
from gpupack_queue.pending.pending_jobs import PendingJob
from gpupack_queue.state.queue_state import State

MAX_BEHIND_OTHERS: Final = 16
"""The maximum number of heads that only the reservations of other heads leave without one.

Their reservations are computed again every few seconds.
"""

MAX_HOPELESS: Final = 16
"""The maximum number of heads of one tenant that no end of a running job helps.

They are searched for again after an end of a job that was taken to run forever.
"""


class QueueHeads:
    """The queue heads in their order; mutable."""

    def __init__(self, state: State, now: float) -> None:
        self._state, self._now = state, now
        rules = state.quota.rules
        self._maximum, self._reserve_after = rules.max_reservations, rules.reserve_after_seconds
        self._heads: list[PendingJob] = []
        self._more: list[PendingJob] = []
        """Further jobs without GPUs, which get a reservation if earlier ones cannot have one."""
        self.early: set[JobId] = set()
        """The heads that have not waited long: they hold back only jobs of lower priority."""
        self._reserving = [0, 0]
        """The number of heads that may have a reservation: those that have waited, early ones."""
        self._hopeless: dict[JobId, Tenant] = {}
        """The heads that no end of a running job helps."""
        self._hopeless_of: Counter[Tenant] = Counter()
        """The number of these heads by tenant."""
        self._behind_others: set[JobId] = set()
        """The heads that fit in no future with the reservations of earlier heads."""
        self._owners = self._previous_owners()
        """The jobs that had a reservation before, and have not been tried in this cycle."""
        self.due_at = inf
        """The next time at which a job has waited long enough for a reservation."""

    def __len__(self) -> int:
        return len(self._heads)

    def __iter__(self) -> Iterator[PendingJob]:
        return iter(self._heads)

    def __getitem__(self, at: int) -> PendingJob:
        return self._heads[at]

    def __contains__(self, job: object) -> bool:
        return any(head.job.id == job for head in self._heads)

    def add(self, entry: PendingJob) -> None:
        """Add a job that lacks GPUs; it is a head if not too many have a reservation already.

        It holds back jobs of lower priority at once, and other jobs when it has waited long enough.
        """
        due = entry.pending_since + self._reserve_after
        if due > self._now:
            self.due_at = min(self.due_at, due)
            if due == inf:
                return
            self.early.add(entry.job.id)
        is_owner = self._owners and self._owners.pop(entry.job.id, None) is not None
        if is_owner or self._may_have_reservation(entry):
            self._append(entry)
        else:
            self._more.append(entry)

    def remove(self, job: JobId) -> None:
        """Remove a head for which other places are reserved."""
        self.record_reservation(job)
        self._reserving[job in self.early] -= job in self
        self.early.discard(job)
        self._heads = [head for head in self._heads if head.job.id != job]
        self._more = [head for head in self._more if head.job.id != job]

    def record_reservation(self, job: JobId) -> None:
        """Record that the head has a reservation."""
        if job in self._hopeless or job in self._behind_others:
            self._reserving[job in self.early] += 1
            self._behind_others.discard(job)
            if (tenant := self._hopeless.pop(job, None)) is not None:
                self._hopeless_of[tenant] -= 1

    def record_none(self, job: Job, *, no_end_helps: bool) -> None:
        """Record that nothing can be reserved for the head; later jobs may be heads instead.

        `no_end_helps`: whatever is reserved for other heads.
        """
        self.record_reservation(job.id)
        if no_end_helps:
            self._hopeless[job.id] = job.tenant
            self._hopeless_of[job.tenant] += 1
        else:
            self._behind_others.add(job.id)
        self._reserving[job.id in self.early] -= 1
        more, self._more = self._more, []
        for entry in more:
            if self._may_have_reservation(entry):
                self._append(entry)
            else:
                self._more.append(entry)

    def holds_back(self, head: Job, job: Job) -> bool:
        """Tell whether what is reserved for the head is kept from the job."""
        if job.extends is not None:
            return True
        return head.id not in self.early or head.priority > job.priority

    def any_before(self, job: Job) -> bool:
        """Tell whether what is reserved for any head is kept from the job."""
        return any(self.holds_back(head.job, job) for head in self._heads)

    def _may_have_reservation(self, entry: PendingJob) -> bool:
        """Tell whether one more job can have a reservation, of the kind that it would have.

        Shares go up and down, and the order changes with them. A job with a reservation keeps it,
        as long as no more urgent job lacks one.
        """
        if self._hopeless_of[entry.job.tenant] >= MAX_HOPELESS:
            return False
        is_early, priority = entry.job.id in self.early, entry.job.priority
        alike = self._reserving[is_early]
        if alike >= self._maximum or len(self._behind_others) >= MAX_BEHIND_OTHERS:
            return False
        if not is_early:
            alike += sum(other.priority >= priority for other in self._owners.values())
        return alike < self._maximum

    def _append(self, entry: PendingJob) -> None:
        self._heads.append(entry)
        self._reserving[entry.job.id in self.early] += 1

    def _previous_owners(self) -> dict[JobId, Job]:
        if not self._state.quota.rules.by_share:
            return {}
        waited = self._now - self._state.quota.rules.reserve_after_seconds
        heads = (
            self._state.pending.get(reservation.job.id)
            for reservation in self._state.backfill_reservations
            if reservation.placements is not None
        )
        return {head.job.id: head.job for head in heads if head and head.pending_since <= waited}
