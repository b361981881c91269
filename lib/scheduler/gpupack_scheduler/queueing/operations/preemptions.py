# SPDX-License-Identifier: Apache-2.0
"""Preemptions: first written, then victims end (victims.py), then the preemptor runs.

    of a GPUJob   the operator writes it into the status
    of a pod      it is written into the pod's annotation

After a restart a GPUJob may show a preemption before its next attempt is submitted. Its places are
reserved all the same: else a job that is submitted earlier would get what the victims release.
"""

import dataclasses
import itertools
import logging
from collections import Counter
from collections.abc import Collection, Iterable

from gpupack_crds.gpujob_status import Preemption
from gpupack_placement import Request
from gpupack_placement.feasibility import usable
from gpupack_queue import CancelReservation, JobId, Preempt, Queue
from gpupack_scheduler.ledger.claims import Allocation
from gpupack_scheduler.ledger.jobs import ShownJob
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.placed_job import PlacedPreemption
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.queueing.notices import Notices
from gpupack_scheduler.queueing.operations import status
from gpupack_scheduler.queueing.operations.operation import Event, Operation, Operations, Phase
from gpupack_scheduler.queueing.pending import gate
from gpupack_scheduler.queueing.pending.pending_requests import PendingRequests
from gpupack_scheduler.queueing.pending.request import (
    GangRequest,
    GatedPodRequest,
    PodGroupRequest,
    QueueRequest,
    is_attempt,
    job_id,
)
from gpupack_scheduler.queueing.running import holders
from gpupack_scheduler.requests.mismatch import mismatch
from gpupack_scheduler.requests.needs import NO_NEEDS, Needs

log = logging.getLogger(__name__)


class Preemptions:
    """The preemptions of pending jobs.

    Args:
        ledger: GPUJobs and pods from the watch.
        queue: the queue, which reserves the places.
        waiting: the pending requests.
        notices: what the preemptors must learn.
        hold_seconds: time within which a preemption must be written.

    Attributes:
        operations: the preemptions that are not over, by preemptor.
        stopped: number of victims by reason, since this process started.
        given_up: number of preemptions that ended because their victims did not end.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: Queue,
        waiting: PendingRequests,
        notices: Notices,
        *,
        hold_seconds: float,
    ) -> None:
        self._ledger, self._queue, self._waiting = ledger, queue, waiting
        self._notices, self._hold_seconds = notices, hold_seconds
        self.operations: Operations[Preempt] = Operations()
        self._gained: dict[JobId, float] = {}
        """GPU-seconds that a consolidation gains for the preemptor."""
        self._over: dict[JobId, PlacedPreemption] = {}
        """Preemptions that are over, while the status of a pending job may still show them."""
        self._unsubmitted: dict[JobId, PlacedPreemption] = {}
        """Preemptions in statuses of GPUJobs, by the attempt that is to be submitted."""
        self.stopped: Counter[str] = Counter()
        self.given_up = 0

    def decide(
        self,
        decision: Preempt,
        now: float,
        *,
        asking: AttemptKey | None,
        gained: float | None = None,
    ) -> None:
        """Reserve the places; no victim ends before the preemption is written.

        `gained`: GPU-seconds, for a consolidation, whose victims are moved.
        """
        job, ask = decision.job, self._waiting[decision.job].ask
        made = Operation.decided(decision, now, hold_seconds=self._hold_seconds)
        self._queue.reserve(decision, self._ledger.cluster, made.since)
        self.stopped.update(victim.reason.value for victim in decision.victims)
        self.operations.put(job, made)
        if gained is not None:
            self._gained[job] = gained
        if not isinstance(ask, GangRequest) or ask.attempt != asking:
            self._notices.preemption(ask, self._to_status(job))

    def cancel(self, given_up: CancelReservation) -> None:
        """Give up a preemption whose victims did not end, or whose reservation is useless.

        The queue looks for another way.
        """
        self.release(given_up.job, stuck=given_up.stuck)
        self.record_stuck(given_up.stuck)

    def record_stuck(self, victims: Collection[JobId]) -> None:
        """Count a preemption that was given up for these victims, which did not end."""
        if victims:
            self.given_up += 1
            log.warning("%s were to end and did not", ", ".join(victims))

    def end_overdue(self, now: float) -> None:
        """End preemptions that should be written by now and are not."""
        for job in self.operations.overdue(now):
            self.release(job, event=Event.EXPIRED)

    def release(
        self,
        job: JobId,
        *,
        event: Event = Event.WITHDRAWN,
        stuck: Collection[JobId] = (),
    ) -> None:
        """Release a reservation and notify the preemptor, so that its status shows it."""
        waiting = self._waiting.get(job)
        ask = waiting.ask if waiting else None
        unsubmitted, written = self._unsubmitted.pop(job, None), self._to_status(job)
        shown = self._shown(ask) if ask else unsubmitted
        if shown is None and written is not None:
            shown = status.as_shown(written)
        if shown is not None:
            self._over[job] = shown
        self._end(job, event)
        self._queue.release(job, self._ledger.cluster, stuck=stuck)
        if ask is not None:
            self._notices.preemption(ask, None)

    def forget(self, job: JobId, event: Event) -> None:
        """Forget the preemption of a job that starts, or no longer waits."""
        self._end(job, event)
        self._over.pop(job, None)

    def is_over(self, job: JobId, shown: PlacedPreemption) -> bool:
        """Tell whether the status shows a preemption that is over, and no new one."""
        return self._over.get(job) == shown

    def preemption_of(self, attempt: AttemptKey) -> Preemption | None:
        """Return the preemption for an attempt, as its status will show it; None: there is none."""
        return self._to_status(job_id(attempt))

    def see(self, job: JobId, tickets: Iterable[dict[str, int]], now: float) -> None:
        """Apply the preemption that a pending job shows, written here or before a restart.

        `tickets`: device tokens of each worker.
        """
        if job not in self._queue.state.pending:
            return
        shown, known = self._shown(self._waiting[job].ask), self._to_status(job)
        if shown is None:
            if self.operations.phase(job) not in {None, Phase.DECIDED}:
                self.release(job)
        elif known is None:
            self._find(job, shown, tickets, now)
        elif status.shows(shown, known):
            self.operations.apply(job, Event.SHOWN)

    def see_unsubmitted(self, uid: str, now: float) -> None:
        """Apply the preemption that a GPUJob shows for its next attempt."""
        shown = self._ledger.jobs.shown(uid)
        written = shown.preemption if shown and shown.may_wait else None
        if shown is None or written is None or status.names_job(written, uid):
            self.submitted(uid)
            return
        attempt = dataclasses.replace(shown.attempt, number=shown.attempt.number + 1)
        job = job_id(attempt)
        is_known = self._unsubmitted.get(job) == written
        if job in self._waiting or job in self._queue.state.running or is_known:
            return
        self.submitted(uid)
        if not self.is_over(job, written):
            self._reserve_unsubmitted(attempt, written, shown, now)

    def submitted(self, uid: str) -> None:
        """Release the reservation of a job that is submitted, or no longer needs it.

        A preemption that still holds is found again for the submitted attempt.
        """
        for job in [job for job in self._unsubmitted if job.partition("/")[0] == uid]:
            del self._unsubmitted[job]
            self.forget(job, Event.STARTED)
            self._queue.release(job, self._ledger.cluster)

    def clear(self) -> None:
        """Forget all preemptions, because the queue is rebuilt."""
        self.operations.clear()
        for each in (self._gained, self._over, self._unsubmitted):
            each.clear()

    def _end(self, job: JobId, event: Event) -> None:
        self.operations.apply(job, event)
        self._gained.pop(job, None)

    def _find(
        self, job: JobId, shown: PlacedPreemption, tickets: Iterable[dict[str, int]], now: float
    ) -> None:
        """Reserve the places that the preemptor's status shows since an earlier process."""
        gang = self._waiting[job].ask.gang
        of_gang = (Needs.of(role.request) for role in gang.role_of_each_worker())
        tokens = itertools.chain(tickets, itertools.repeat({}))
        held = status.places(shown, tokens, itertools.chain(of_gang, itertools.repeat(NO_NEEDS)))
        if len(held) != gang.workers or self.is_over(job, shown):
            return
        requests = (role.request for role in gang.role_of_each_worker())
        if not is_attempt(job) and not all(map(self._is_possible, requests, held)):
            return
        victims = status.victims(shown, job)
        if not all(status.leaves(victim, self._queue) for victim in victims):
            self.release(job)
            return
        decision = Preempt(job, victims, tuple(each.placement for each in held))
        found = Operation.found(decision, status.decided_at(shown, now))
        self.operations.put(job, found)
        self._queue.reserve(decision, self._ledger.cluster, found.since)

    def _reserve_unsubmitted(
        self, attempt: AttemptKey, written: PlacedPreemption, shown: ShownJob, now: float
    ) -> None:
        """Reserve the places with all needs of the job's planned pod.

        Where all victims have ended, the time to submit the job counts from now: while no process
        led it could not be submitted.
        """
        job = job_id(attempt)
        victims = status.victims(written, job)
        tokens = itertools.repeat(shown.tokens)
        held = status.places(written, tokens, shown.needs_of_workers)
        if not held or not all(status.leaves(victim, self._queue) for victim in victims):
            return
        places = tuple(each.placement for each in held)
        found = Operation.found(Preempt(job, victims, places), status.decided_at(written, now))
        self._unsubmitted[job] = written
        self.operations.put(job, found)
        some_run = any(victim.job in self._queue.state.running for victim in victims)
        self._queue.reserve_for_move(
            holders.gang_job(attempt, places, shown, None),
            places,
            self._ledger.cluster,
            found.since if some_run else now,
            victims=[victim.job for victim in victims],
        )

    def _is_possible(self, request: Request, place: Allocation) -> bool:
        """Tell whether the place fits the pod's request and rules, which can be narrower now."""
        row = self._ledger.cluster.row(place.node)
        if row is None or mismatch(request, place):
            return False
        return bool(usable(self._ledger.cluster, request)[row])

    def _to_status(self, job: JobId) -> Preemption | None:
        made = self.operations.get(job)
        gained = self._gained.get(job)
        return None if made is None else status.to_status(made.decision, made.since, gained)

    def _shown(self, ask: QueueRequest) -> PlacedPreemption | None:
        if isinstance(ask, GatedPodRequest):
            return gate.preemption_of(ask.pod)
        if isinstance(ask, PodGroupRequest):
            return gate.preemption_of(ask.first)
        job = self._ledger.jobs.shown(ask.attempt.job_uid)
        return job.preemption if job else None
