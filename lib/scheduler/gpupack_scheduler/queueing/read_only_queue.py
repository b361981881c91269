# SPDX-License-Identifier: Apache-2.0
"""A read-only copy of the leader's queue, from API objects, for questions.

    running jobs             by the ledger's claims, as any standby follows them
    pending jobs             GPUJobs by their statuses; standalone pods behind gpupack's gate
    preemptions              from statuses and annotations
    quotas, averages         GPUQuotas and GPUCohorts
    forecast of policies      the published one (published_forecast.py)

It decides nothing and delivers no notices. The queue's own cycles on a copy answer a question
(gpupack_queue.what_if). What these cycles find out about pending jobs is remembered here,
as in real cycles. The read-only queue does not know what no object shows: places that are decided
and not written yet, and which jobs were backfilled on an estimate.
"""

import datetime as dt
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from math import inf
from typing import Final

from gpupack_placement import POLICIES, Cluster, LedgerConflict
from gpupack_queue.state.queue_state import Findings
from gpupack_scheduler.decisions import Decisions
from gpupack_scheduler.errors import QueueFull
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.pending_job import PendingJob, PendingSpec
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.policies import Policies
from gpupack_scheduler.queueing.observed_queue import ObservedQueue
from gpupack_scheduler.queueing.pending.request import GangRequest
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.requests import gang_request
from gpupack_scheduler.requests.created_by import user_of

log = logging.getLogger(__name__)

MAX_TRIED: Final = 32
"""Maximum of jobs outside the queue that are tried at a time: a namespace may have any number, and
each takes a third of a millisecond."""

PriorityOf = Callable[[PendingSpec], int | None]
"""The priority with which a job is planned; None: its PriorityClass does not permit it."""


class ReadOnlyQueue:
    """The read-only queue; confined to the thread of the event loop.

    Args:
        ledger: the claims.
        policies: the placement policies.
        quotas: GPUQuotas and GPUCohorts.
        now: seconds since the epoch, by the API server's clock.
        decisions: the same settings as the leader's.
        priority_of: priority by PriorityClass or number.
    """

    def __init__(
        self,
        ledger: Ledger,
        policies: Policies,
        quotas: QuotaStores,
        *,
        now: Callable[[], float],
        decisions: Decisions,
        priority_of: PriorityOf,
    ) -> None:
        self._ledger, self._decisions = ledger, decisions
        self._priority_of = priority_of
        self.observed = ObservedQueue(ledger, policies, quotas, now=now, decisions=decisions)
        self._waiting: dict[str, PendingJob] = {}
        """Pending jobs by UID."""
        self._unseen: set[str] = set()
        """UIDs of jobs that must be updated in the queue."""
        self._outside: dict[str, str] = {}
        """UIDs of pending jobs that are not in the queue, and why not; the next one to be tried
        comes first."""

    def see(self, job: PendingJob) -> None:
        """Add or update a GPUJob."""
        if job.waits:
            self._waiting[job.metadata.uid] = job
        else:
            self._waiting.pop(job.metadata.uid, None)
        self._unseen.add(job.metadata.uid)

    def see_gone(self, job: PendingJob) -> None:
        """Remove a GPUJob."""
        self._waiting.pop(job.metadata.uid, None)
        self._unseen.add(job.metadata.uid)

    def see_all(self, jobs: Iterable[PendingJob]) -> None:
        """Replace all GPUJobs by these."""
        self._unseen |= self._waiting.keys()
        self._waiting.clear()
        for job in jobs:
            self.see(job)

    def see_priorities(self) -> None:
        """Update jobs with a PriorityClass, because a class changed."""
        named = (uid for uid, job in self._waiting.items() if job.spec.priority_class_name)
        self._unseen.update(named)

    def follow(self) -> None:
        """Apply all changes; called before each question and from time to time.

        If queue and ledger contradict each other the queue is rebuilt.
        """
        try:
            self._follow()
        except LedgerConflict:
            log.exception("the queue is followed again")
            self.observed.restart()
            self._unseen |= self._waiting.keys()
            self._follow()

    def attempt(self, uid: str) -> AttemptKey | None:
        """Return the attempt of a GPUJob that waits in the queue; None if none does."""
        job = self._waiting.get(uid)
        return None if job is None or uid in self._outside else _attempt(job)

    def obstacle(self, uid: str) -> str:
        """Return why a pending GPUJob is not in the queue; empty: it is, or does not wait."""
        return self._outside.get(uid, "")

    def remember(self, found: Findings, fork: Cluster) -> None:
        """Remember what cycles on a copy found out, if nothing was decided there."""
        self.observed.queue.state.restore(found)
        self._ledger.cluster.copy_figures(fork)

    def _follow(self) -> None:
        self.observed.see()
        unseen, self._unseen = self._unseen.union(islice(self._outside, MAX_TRIED)), set()
        for uid in sorted(unseen, key=self._by_age):
            self._outside.pop(uid, None)
            if (job := self._waiting.get(uid)) is None:
                self.observed.withdraw(uid)
            else:
                self._submit(job)

    def _by_age(self, uid: str) -> tuple[float, str]:
        """Return the sort key by age: the older job enters first where a namespace has a limit."""
        job = self._waiting.get(uid)
        return (-inf if job is None else _created(job), uid)

    def _submit(self, job: PendingJob) -> None:
        uid, ask = job.metadata.uid, self._ask(job)
        if isinstance(ask, str):
            self.observed.withdraw(uid)
            self._outside[uid] = ask
            return
        try:
            self.observed.submit(ask)
        except QueueFull as error:
            self.observed.withdraw(uid)
            self._outside[uid] = str(error)

    def _ask(self, job: PendingJob) -> GangRequest | str:
        """Return the request as the operator would send it, or why there is none."""
        priority = self._priority_of(job.spec)
        if priority is None:
            return f"PriorityClass {job.spec.priority_class_name} does not let it wait"
        gang = gang_request.of_placed(job, self._decisions.observed_resources)
        if gang is None:
            return "what it asks for cannot be read, or it names too many nodes"
        now = dt.datetime.fromtimestamp(self.observed.now(), dt.UTC)
        held_since = job.status.held_since
        return GangRequest(
            attempt=_attempt(job),
            gang=gang,
            policy=job.spec.policy if job.spec.policy in POLICIES else None,
            priority=priority,
            submitted=_created(job),
            since=since.timestamp() if (since := job.waits_since) else None,
            duration=job.seconds_left,
            version=job.metadata.resource_version,
            avoid=job.status.to_avoid(now, self._decisions.avoid_seconds),
            movable=job.spec.movable,
            extra=job.spec.extra,
            held_since=held_since.timestamp() if held_since else None,
            grace=job.grace,
            user=user_of(job.metadata),
            model_fallback_seconds=job.spec.model_fallback_seconds,
            reservation=job.spec.reservation,
        )


def _attempt(job: PendingJob) -> AttemptKey:
    meta = job.metadata
    number = job.status.attempt + 1
    return AttemptKey(namespace=meta.namespace, job=meta.name, job_uid=meta.uid, number=number)


def _created(job: PendingJob) -> float:
    created = job.metadata.creation_timestamp
    return created.timestamp() if created else 0.0
