# SPDX-License-Identifier: Apache-2.0
"""The queue heads of one cycle: the jobs that may have a backfill reservation.

The maximum counts reservations, not heads. A head for which nothing can be reserved leaves its
turn to the next one, but only so often for one tenant: each such head costs a search, and no job
passes the heads before the search. Each tenant that waits for GPUs has one part of a maximum, and
the first jobs in the order have the rest (TenantParts): no tenant takes all of it.
"""

from collections.abc import Iterator
from math import inf
from typing import Final

from gpupack_queue.job import Job, JobId, Tenant
from gpupack_queue.pending.pending_jobs import PendingJob
from gpupack_queue.reservations.tenant_parts import TenantParts
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
        others = state.waiting_tenants
        self._reserving = [TenantParts(self._maximum, others), TenantParts(self._maximum, others)]
        """The heads that may have a reservation: those that have waited, early ones."""
        self._hopeless = TenantParts(inf)
        """The heads that no end of a running job helps."""
        self._behind_others = TenantParts(MAX_BEHIND_OTHERS, others)
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
        is_owner = self._owners.pop(entry.job.id, None) is not None
        if self._may_have_reservation(entry, is_owner=is_owner):
            self._append(entry)
        else:
            self._more.append(entry)

    def remove(self, job: JobId) -> None:
        """Remove a head for which other places are reserved."""
        self.record_reservation(job)
        self._reserving[job in self.early].discard(job)
        self.early.discard(job)
        self._heads = [head for head in self._heads if head.job.id != job]
        self._more = [head for head in self._more if head.job.id != job]

    def record_reservation(self, job: JobId) -> None:
        """Record that the head has a reservation."""
        tenant = self._hopeless.discard(job) or self._behind_others.discard(job)
        if tenant is not None:
            self._reserving[job in self.early].add(job, tenant)

    def record_none(self, job: Job, *, no_end_helps: bool) -> None:
        """Record that nothing can be reserved for the head; later jobs may be heads instead.

        `no_end_helps`: whatever is reserved for other heads.
        """
        self.record_reservation(job.id)
        (self._hopeless if no_end_helps else self._behind_others).add(job.id, job.tenant)
        self._reserving[job.id in self.early].discard(job.id)
        more, self._more = self._more, []
        for entry in more:
            if self._may_have_reservation(entry):
                self._append(entry)
            else:
                self._more.append(entry)

    def waiting_tenants(self) -> frozenset[Tenant]:
        """Return the tenants with jobs that have a reservation, or would have one with more."""
        reserving = (tenant for parts in self._reserving for tenant in parts.tenants())
        behind = (*self._behind_others.tenants(), *(entry.job.tenant for entry in self._more))
        return frozenset((*reserving, *behind))

    def holds_back(self, head: Job, job: Job) -> bool:
        """Tell whether what is reserved for the head is kept from the job."""
        if job.extends is not None:
            return True
        return head.id not in self.early or head.priority > job.priority

    def any_before(self, job: Job) -> bool:
        """Tell whether what is reserved for any head is kept from the job."""
        return any(self.holds_back(head.job, job) for head in self._heads)

    def _may_have_reservation(self, entry: PendingJob, *, is_owner: bool = False) -> bool:
        """Tell whether one more job can have a reservation, of the kind that it would have.

        Shares go up and down, and the order changes with them. A job with a reservation keeps it,
        as long as no more urgent job lacks one.
        """
        tenant, is_early = entry.job.tenant, entry.job.id in self.early
        others = () if is_early or is_owner else self._owners.values()
        owners = [each.tenant for each in others if each.priority >= entry.job.priority]
        return (
            self._reserving[is_early].may_add(tenant, owners)
            and self._hopeless.count(tenant) < MAX_HOPELESS
            and self._behind_others.may_add(tenant)
        )

    def _append(self, entry: PendingJob) -> None:
        self._heads.append(entry)
        self._reserving[entry.job.id in self.early].add(entry.job.id, entry.job.tenant)

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
