# SPDX-License-Identifier: Apache-2.0
"""Execution of preemptions: first written, then victims end, then the preemptor runs.

    of a GPUJob   the operator writes it into the status, and ends the victims named there
    of a pod      it is written into the pod's annotation here; the operator gets the attempts

Victims that are pods are evicted here, once the preemption is written.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from gpupack_crds.gpujob_status import PREEMPTION_TEXTS, Preemption
from gpupack_crds.plan import Stop
from gpupack_placement import Request
from gpupack_placement.feasibility import usable
from gpupack_queue import CancelReservation, JobId, Preempt, Queue
from gpupack_queue.explain.reasons import name_of
from gpupack_scheduler.ledger.claims import Allocation, State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.placed_job import PlacedPreemption
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.queueing import gate, preemptions
from gpupack_scheduler.queueing.eviction import Eviction
from gpupack_scheduler.queueing.notices import Notices
from gpupack_scheduler.queueing.pending import PendingRequests
from gpupack_scheduler.queueing.preemptions import PreemptionRecords
from gpupack_scheduler.queueing.request import GangRequest, GatedPodRequest, job_id, pod_uid
from gpupack_scheduler.queueing.restored_preemptions import RestoredPreemptions, is_moved, leaves
from gpupack_scheduler.requests.mismatch import mismatch
from gpupack_scheduler.requests.needs import Needs

MAX_UNWRITTEN: Final = 32
"""Maximum of preemptions yet to be written: the operator submits one plan after the other."""

log = logging.getLogger(__name__)


class PreemptionActions:
    """The preemptions in progress.

    Args:
        ledger: the GPUJobs and pods from the watch.
        waiting: the pending jobs.
        notices: what others must learn.
        hold_seconds: time within which a preemption must be written.

    Attributes:
        unasked: preemptions restored from status, of jobs that were not submitted since this
            process started.
        stopped: number of victims by reason, since this process started.
        given_up: number of preemptions that ended because their victims did not end.
    """

    def __init__(
        self, ledger: Ledger, waiting: PendingRequests, notices: Notices, *, hold_seconds: float
    ) -> None:
        self._ledger, self._waiting, self._notices = ledger, waiting, notices
        self._hold_seconds = hold_seconds
        self._made = PreemptionRecords()
        self.unasked = RestoredPreemptions(ledger, self._made, waiting)
        self.stopped: Counter[str] = Counter()
        self.given_up = 0

    def __len__(self) -> int:
        """Return the number of preemptions in progress."""
        return len(self._made)

    def oldest(self) -> float | None:
        """Return when the oldest preemption in progress was decided; None if there is none."""
        return self._made.oldest()

    def may_decide(self) -> bool:
        """Tell whether another preemption may be decided."""
        return self._made.unwritten < MAX_UNWRITTEN

    def __contains__(self, job: JobId) -> bool:
        return job in self._made

    def is_written(self, job: JobId) -> bool:
        """Tell whether a preemption is written, so that its victims may end."""
        return self._made.is_written(job)

    def decided(
        self,
        decision: Preempt,
        queue: Queue,
        now: float,
        *,
        asking: AttemptKey | None,
        gained: float | None = None,
    ) -> None:
        """Reserve the places; no victim ends before the preemption is written.

        `gained`: GPU-seconds, for a consolidation, whose victims are moved.
        """
        queue.reserve(decision, self._ledger.cluster, now)
        self.stopped.update(victim.reason.value for victim in decision.victims)
        self._made.decided(decision, now, hold_seconds=self._hold_seconds, gained=gained)
        ask = self._waiting[decision.job].ask
        if isinstance(ask, GatedPodRequest) or ask.attempt != asking:
            self._notices.preemption(ask, self._made.preemption_of(decision.job))

    def cancel(self, given_up: CancelReservation, queue: Queue) -> None:
        """Give up a preemption whose victims did not end, or whose reservation is useless.

        The queue looks for another way.
        """
        self.release(given_up.job, queue, stuck=given_up.stuck)
        if given_up.stuck:
            self.given_up += 1
            log.warning("%s were to end and did not", ", ".join(given_up.stuck))

    def end_overdue(self, queue: Queue, now: float) -> None:
        """End preemptions that should be written by now and are not."""
        for job in self._made.overdue(now):
            self.release(job, queue)

    def release(self, job: JobId, queue: Queue, *, stuck: Collection[JobId] = ()) -> None:
        """Release a reservation and notify the preemptor, so that its status shows it."""
        waiting = self._waiting.get(job)
        ask = waiting.ask if waiting else None
        shown = self.unasked.give_up(job)
        self._made.over(job, self._shown(ask) if ask else shown)
        queue.release(job, self._ledger.cluster, stuck=stuck)
        if ask is not None:
            self._notices.preemption(ask, None)

    def forget(self, job: JobId) -> None:
        """Forget the preemption of a job that runs, or no longer waits."""
        self._made.forget(job)

    def preemption_of(self, attempt: AttemptKey) -> Preemption | None:
        """Return the preemption for an attempt, as its status will show it; None: there is none."""
        return self._made.preemption_of(job_id(attempt))

    def see(self, job: JobId, tickets: dict[str, int], queue: Queue, now: float) -> None:
        """Apply the preemption that a pending job shows, written here or before a restart."""
        ask = self._waiting[job].ask
        shown = self._shown(ask)
        if job not in queue.state.pending:
            return
        if shown is None:
            if self._made.is_written(job):
                self.release(job, queue)
        elif job in self._made:
            self._made.see(job, shown)
        else:
            self._find(job, shown, tickets, queue, now)

    def stops(self) -> tuple[Stop, ...]:
        """Return attempts that must end for pods. Those for GPUJobs are in statuses."""
        return tuple(
            Stop(
                attempt=victim.job,
                reason=victim.reason.value,
                namespace=ask.namespace,
                pod=ask.pod.metadata.name,
            )
            for job, decision in self._made.written()
            if (waiting := self._waiting.get(job)) is not None
            and isinstance(ask := waiting.ask, GatedPodRequest)
            for victim in decision.victims
            if pod_uid(victim.job) is None and not is_moved(victim)
        )

    def evictions(self, queue: Queue) -> Iterator[Eviction]:
        """Yield pods that must end, for any preemptor, and are not being deleted yet."""
        for job, decision in self._made.written():
            waiting = self._waiting.get(job)
            for victim in decision.victims:
                claim = self._ledger.claims.pods.get(pod_uid(victim.job) or "")
                running = queue.state.running.get(victim.job)
                if waiting is None or claim is None or running is None or claim.leaves:
                    continue
                if claim.state is State.BOUND:
                    preemptor = name_of(waiting.ask.job, to=running.job)
                    why = f"for {preemptor}, {PREEMPTION_TEXTS[victim.reason.value]}"
                    reason = str(victim.reason)
                    yield Eviction(claim.uid, claim.namespace, claim.name, reason, why)

    def _find(
        self,
        job: JobId,
        shown: PlacedPreemption,
        tickets: dict[str, int],
        queue: Queue,
        now: float,
    ) -> None:
        gang = self._waiting[job].ask.gang
        victims, held = preemptions.read(shown, job, Needs.of(gang.request), tickets)
        if len(held) != gang.workers or self._made.is_over(job, shown):
            return
        if pod_uid(job) is not None and not self._is_possible(gang.request, held[0]):
            return
        decision = Preempt(job, victims, tuple(each.placement for each in held))
        if not all(leaves(victim, queue) for victim in victims):
            self.release(job, queue)
            return
        self._made.found(decision, now)
        queue.reserve(decision, self._ledger.cluster, now)

    def _is_possible(self, request: Request, place: Allocation) -> bool:
        """Tell whether the place fits the pod's request and rules, which can be narrower now."""
        row = self._ledger.cluster.row(place.node)
        if row is None or mismatch(request, place):
            return False
        return bool(usable(self._ledger.cluster, request)[row])

    def _shown(self, ask: GangRequest | GatedPodRequest) -> PlacedPreemption | None:
        if isinstance(ask, GatedPodRequest):
            return gate.preemption_of(ask.pod)
        job = self._ledger.jobs.shown(ask.attempt.job_uid)
        return job.preemption if job else None
