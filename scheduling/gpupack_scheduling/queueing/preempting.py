# SPDX-License-Identifier: Apache-2.0
"""Carries preemptions through: written down first, then victims end, then the beneficiary runs.

    of a GPUJob   the operator writes it into the status, and ends the attempts that stand there
    of a pod      it is written into the pod's annotation here; the operator is told of attempts

Pods that are victims are evicted here, once the preemption is written.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

import gpupack_core as core
from gpupack_core.feasibility import usable
from gpupack_core.queueing import GiveUp, JobId, Preempt, Queue
from gpupack_core.queueing.reasons import name_of
from gpupack_crds.gpujob_status import GROUNDS, Preemption
from gpupack_crds.plan import Stop
from gpupack_scheduling.asks.mismatch import mismatch
from gpupack_scheduling.asks.needs import Needs
from gpupack_scheduling.ledger.claims import Allocation, State
from gpupack_scheduling.ledger.ledger import Ledger
from gpupack_scheduling.ledger.placed_job import PlacedPreemption
from gpupack_scheduling.ledger.workers import AttemptKey
from gpupack_scheduling.queueing import gate, preemptions
from gpupack_scheduling.queueing.ask import GangAsk, GatedAsk, job_id, pod_uid
from gpupack_scheduling.queueing.eviction import Eviction
from gpupack_scheduling.queueing.hears import Hears
from gpupack_scheduling.queueing.preemptions import Preemptions
from gpupack_scheduling.queueing.unasked import Unasked, is_moved, leaves
from gpupack_scheduling.queueing.waiting import WaitingAsks

MAX_UNWRITTEN: Final = 32
"""That are to be written at once: the operator asks for one plan after the other."""

log = logging.getLogger(__name__)


class Preempting:
    """Those that stand.

    Args:
        ledger: what is shown of GPUJobs and pods.
        waiting: who waits.
        hears: of what there is to be written.
        hold_seconds: within which it is.

    Attributes:
        unasked: of those who have not asked since this process began.
        stopped: how many were told to end for others, by ground, since this process began.
        given_up: how many preemptions ended as their victims did not.
    """

    def __init__(
        self, ledger: Ledger, waiting: WaitingAsks, hears: Hears, *, hold_seconds: float
    ) -> None:
        self._ledger, self._waiting, self._hears = ledger, waiting, hears
        self._hold_seconds = hold_seconds
        self._made = Preemptions()
        self.unasked = Unasked(ledger, self._made, waiting)
        self.stopped: Counter[str] = Counter()
        self.given_up = 0

    def __len__(self) -> int:
        """How many stand."""
        return len(self._made)

    def oldest(self) -> float | None:
        """When the one was decided that stands for the longest; None: none stands."""
        return self._made.oldest()

    def may_decide(self) -> bool:
        """Whether there may be another."""
        return self._made.unwritten < MAX_UNWRITTEN

    def __contains__(self, job: JobId) -> bool:
        return job in self._made

    def is_written(self, job: JobId) -> bool:
        """Whether victims may end."""
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
        """Keep the room; nobody is stopped before it is written down.

        `gained`: GPU-seconds, of a consolidation, whose victims are moved.
        """
        queue.reserve(decision, self._ledger.cluster, now)
        self.stopped.update(victim.ground.value for victim in decision.victims)
        self._made.decided(decision, now, hold_seconds=self._hold_seconds, gained=gained)
        ask = self._waiting[decision.job].ask
        if isinstance(ask, GatedAsk):
            self._hears.gates.record(ask.pod, self._made.told(decision.job))
        elif ask.attempt != asking:
            self._hears.call(ask.attempt)

    def give_up(self, given_up: GiveUp, queue: Queue) -> None:
        """Victims did not end, or the room is of no use any more: another way is sought."""
        self.release(given_up.job, queue, stuck=given_up.stuck)
        if given_up.stuck:
            self.given_up += 1
            log.warning("%s were to end and did not", ", ".join(given_up.stuck))

    def end_overdue(self, queue: Queue, now: float) -> None:
        """Those that should be written by now and are not."""
        for job in self._made.overdue(now):
            self.release(job, queue)

    def release(self, job: JobId, queue: Queue, *, stuck: Collection[JobId] = ()) -> None:
        """Room is kept for it no longer; it asks, so that its status says so."""
        waiting = self._waiting.get(job)
        ask = waiting.ask if waiting else None
        shown = self.unasked.give_up(job)
        self._made.over(job, self._shown(ask) if ask else shown)
        queue.release(job, self._ledger.cluster, stuck=stuck)
        if isinstance(ask, GatedAsk):
            self._hears.gates.record(ask.pod, None)
        elif ask is not None:
            self._hears.call(ask.attempt)

    def forget(self, job: JobId) -> None:
        """It runs, or waits no longer."""
        self._made.forget(job)

    def told(self, attempt: AttemptKey) -> Preemption | None:
        """Who is to be stopped for it, as its status is to say."""
        return self._made.told(job_id(attempt))

    def see(self, job: JobId, tickets: dict[str, int], queue: Queue, now: float) -> None:
        """What is shown of one that waits: written by us, or before a restart."""
        ask = self._waiting[job].ask
        shown = self._shown(ask)
        if job not in queue.state.waiting:
            return
        if shown is None:
            if self._made.is_written(job):
                self.release(job, queue)
        elif job in self._made:
            self._made.see(job, shown)
        else:
            self._find(job, shown, tickets, queue, now)

    def stops(self) -> tuple[Stop, ...]:
        """Attempts that are to end for pods. Of those that end for GPUJobs the operator reads."""
        return tuple(
            Stop(
                attempt=victim.job,
                ground=victim.ground.value,
                namespace=ask.namespace,
                pod=ask.pod.metadata.name,
            )
            for job, decision in self._made.written()
            if (waiting := self._waiting.get(job)) is not None
            and isinstance(ask := waiting.ask, GatedAsk)
            for victim in decision.victims
            if pod_uid(victim.job) is None and not is_moved(victim)
        )

    def evictions(self, queue: Queue) -> Iterator[Eviction]:
        """Pods that are to end, whoever for, and are not being deleted yet."""
        for job, decision in self._made.written():
            waiting = self._waiting.get(job)
            for victim in decision.victims:
                claim = self._ledger.claims.pods.get(pod_uid(victim.job) or "")
                running = queue.state.running.get(victim.job)
                if waiting is None or claim is None or running is None or claim.leaves:
                    continue
                if claim.state is State.BOUND:
                    whom = name_of(waiting.ask.job, to=running.job)
                    why = f"for {whom}, {GROUNDS[victim.ground.value]}"
                    ground = str(victim.ground)
                    yield Eviction(claim.uid, claim.namespace, claim.name, ground, why)

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

    def _is_possible(self, request: core.Request, place: Allocation) -> bool:
        """Whether the pod asks for that, and may be there: it may have been narrowed down since."""
        row = self._ledger.cluster.row(place.node)
        if row is None or mismatch(request, place):
            return False
        return bool(usable(self._ledger.cluster, request)[row])

    def _shown(self, ask: GangAsk | GatedAsk) -> PlacedPreemption | None:
        if isinstance(ask, GatedAsk):
            return gate.preemption_of(ask.pod)
        job = self._ledger.jobs.shown(ask.attempt.job_uid)
        return job.preemption if job else None
