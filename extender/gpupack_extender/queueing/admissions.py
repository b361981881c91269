# SPDX-License-Identifier: Apache-2.0
"""The queue's owner: tells it what has changed, does what it decides, and says why others wait.

    waits      what the operator has asked for; until it has its places, or ends, or nobody knows it
    runs       an attempt or a pod that holds GPUs by the ledger's claims; until it holds none

An admission holds places in the ledger as a plan does, until the watch shows them written. Where
they are not written the claims end, and with them the job's place in the queue: its operator asks
again.
"""

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

import gpupack_core as core
from gpupack_core.queueing import Admit, GiveUp, Job, JobId, Preempt, Queue, Wait
from gpupack_crds.gpujob_status import Preemption
from gpupack_extender.errors import QueueFull
from gpupack_extender.ledger.changes import Changes
from gpupack_extender.ledger.claims import Allocation
from gpupack_extender.ledger.ledger import Ledger
from gpupack_extender.ledger.workers import AttemptKey
from gpupack_extender.pod_ask import PodAsk
from gpupack_extender.policies import Policies
from gpupack_extender.queueing import holders, preemptions
from gpupack_extender.queueing.ask import GangAsk, job_id, pod_id
from gpupack_extender.queueing.capacity import Capacity
from gpupack_extender.queueing.preemptions import Preemptions
from gpupack_extender.queueing.quotas import QuotaStores
from gpupack_extender.queueing.turns import Turns
from gpupack_extender.settings import Decisions

UNKNOWN_SECONDS: Final = 60.0
"""A GPUJob that the watch has not shown for so long is none."""

log = logging.getLogger(__name__)

Places = tuple[core.Placement, ...]


@dataclasses.dataclass(slots=True)
class _Waiting:
    ask: GangAsk
    unknown_since: float


class Admissions:
    """Who waits, who is let in. Nothing here awaits.

    Args:
        ledger: what is held, and by whom.
        policies: where a gang goes.
        turns: hears whose turn has come.
        quotas: GPUQuotas and GPUCohorts; they count from the next look on.
        now: seconds since the epoch, by the API server's clock.
        decisions: how the queue is run, and within what an admission is to be written.
    """

    def __init__(
        self,
        ledger: Ledger,
        policies: Policies,
        turns: Turns,
        *,
        quotas: QuotaStores,
        now: Callable[[], float],
        decisions: Decisions,
    ) -> None:
        self._ledger, self._policies, self._turns = ledger, policies, turns
        self._quotas, self._default = quotas, decisions.queue.default
        self._clock, self._hold_seconds = now, decisions.plan_hold_seconds
        self._now = 0.0
        self._queue = Queue(decisions.queue.as_rules())
        self._configured = -1
        self.problems: Mapping[tuple[str, str], str] = {}
        """What of GPUQuotas and GPUCohorts does not count, by namespace and name."""
        self._waiting: dict[JobId, _Waiting] = {}
        self._of_job: dict[str, set[JobId]] = {}
        self._running: dict[JobId, tuple[Allocation, ...]] = {}
        self._suppositions = holders.Suppositions(ledger.cluster)
        self._preemptions = Preemptions()
        self._capacity = Capacity()
        self.look_at: float | None = None
        """When time alone may make a decision due; None: never."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def queue(self) -> Queue:
        """To be read."""
        return self._queue

    def now(self) -> float:
        """As the queue's time goes: never back."""
        self._now = max(self._now, self._clock())
        return self._now

    def submit(self, ask: GangAsk) -> None:
        """It waits from now on; what was asked for it before is forgotten.

        Raises:
            QueueFull: its namespace has more in the queue than it may.
        """
        self.see()
        job, uid = job_id(ask.attempt), ask.attempt.job_uid
        before = self._waiting.get(job)
        if before is not None and _alike(before.ask, ask):
            before.ask = dataclasses.replace(before.ask, version=ask.version)
            return
        for other in self._of_job.get(uid, set()).copy():
            self._withdraw(other)
        if obstacle := self._capacity.obstacle(ask.attempt.namespace, ask.gang):
            raise QueueFull(obstacle)
        self._capacity.add(ask.attempt.namespace, ask.gang)
        self._waiting[job] = _Waiting(ask, self.now())
        self._of_job.setdefault(uid, set()).add(job)
        self._queue.submit(ask.job, self.now())
        self._see_preemption(uid)

    def withdraw_all(self) -> None:
        """Nobody waits any more: whoever does asks again."""
        for job in tuple(self._waiting):
            self._withdraw(job)

    def see(self) -> None:
        """Take in what has changed in ledger and quotas."""
        self._see_quotas()
        seen = self._ledger.changes.take()
        for node in sorted(seen.nodes):
            self._queue.changed(node, self._ledger.cluster)
        for node in seen.freed:
            row = self._ledger.cluster.row(node)
            if row is not None:
                self._queue.freed(row)
        self._see_holders(seen)
        self._see_jobs(seen.jobs)

    def decide(self, *, asking: AttemptKey | None = None) -> None:
        """Let in whoever can be; `asking` needs not hear of its turn: it is being answered."""
        self.see()
        self._end_overdue()
        while True:
            found = self._queue.cycle(self._ledger.cluster, self.now(), self._plan)
            for given_up in found.given_up:
                self._give_up(given_up)
            for admit in found.admitted:
                self._admit(admit, asking)
            for preempt in found.preemptions:
                self._preempt(preempt, asking)
            if not found:
                self.look_at = found.look_at
                return

    def place(self, pod: PodAsk, nodes: Collection[core.NodeName]) -> core.Placement | Wait:
        """Where a pod of its own may go now among these nodes, or why it may not.

        kube-scheduler keeps it waiting, and asks again. What is answered is the caller's to hold.
        """
        self.decide()
        visitor = holders.waiting_pod(pod)

        def plan(cluster: core.Cluster, job: Job) -> Places | None:
            """Room for those who wait is foreseen meanwhile, on all nodes."""
            if job.id != visitor.id:
                return self._plan(cluster, job)
            policy = self._policies.named()
            found = core.choose(cluster, job.gang.request, policy, candidates=nodes)
            return None if found is None else (found,)

        found = self._queue.visit(visitor, self._ledger.cluster, self.now(), plan)
        return found if isinstance(found, Wait) else found[0]

    def preemption(self, attempt: AttemptKey) -> Preemption | None:
        """Who is to be stopped for it, as its status is to say."""
        return self._preemptions.told(job_id(attempt))

    def why(self, attempt: AttemptKey) -> Wait:
        """Why it waits.

        Raises:
            NotHeld: it does not.
        """
        return self._queue.why(job_id(attempt), self._ledger.cluster, self.now(), self._plan)

    def forget_unknown(self) -> None:
        """Nobody waits for a GPUJob that the watch does not show: it is gone."""
        now = self.now()
        for job, waiting in tuple(self._waiting.items()):
            if self._ledger.jobs.shown(waiting.ask.attempt.job_uid):
                waiting.unknown_since = now
            elif now - waiting.unknown_since > UNKNOWN_SECONDS:
                self._withdraw(job)

    def _admit(self, admit: Admit, asking: AttemptKey | None) -> None:
        ask = self._waiting[admit.job].ask
        attempt = ask.attempt
        self._ledger.hold_plan(
            attempt, admit.placements, seconds=self._hold_seconds, version=ask.version
        )
        self._start(ask.job, admit.placements, self._ledger.claims.held_by(attempt))
        self._call(attempt, asking)

    def _preempt(self, decision: Preempt, asking: AttemptKey | None) -> None:
        """Keep the room; nobody is stopped before the operator has written it down."""
        now = self.now()
        self._queue.reserve(decision, self._ledger.cluster, now)
        self._preemptions.decided(decision, now, hold_seconds=self._hold_seconds)
        self._call(self._waiting[decision.job].ask.attempt, asking)

    def _give_up(self, given_up: GiveUp) -> None:
        """Victims did not end, or the room is of no use any more: another way is sought."""
        self._release(given_up.job, stuck=given_up.stuck)
        if given_up.stuck:
            log.warning("attempts %s were to end and did not", ", ".join(given_up.stuck))

    def _end_overdue(self) -> None:
        for job in self._preemptions.overdue(self.now()):
            self._release(job)

    def _release(self, job: JobId, *, stuck: Collection[JobId] = ()) -> None:
        """Room is kept for it no longer; it asks, so that its status says so."""
        self._preemptions.over(job)
        self._queue.release(job, self._ledger.cluster, stuck=stuck)
        if waiting := self._waiting.get(job):
            self._call(waiting.ask.attempt, None)

    def _call(self, attempt: AttemptKey, asking: AttemptKey | None) -> None:
        """It has something to hear, unless it is being answered."""
        if attempt != asking:
            self._turns.give(attempt.namespace, attempt.job)

    def _start(
        self,
        job: Job,
        places: Places,
        held: tuple[Allocation, ...],
        *,
        since: float | None = None,
    ) -> None:
        self._suppositions.keep(job.id, places)
        self._queue.start(job, places, self._ledger.cluster, self.now(), since=since)
        self._running[job.id] = held
        self._no_longer_waits(job.id)

    def _see_quotas(self) -> None:
        if self._configured == self._quotas.changes:
            return
        self._configured = self._quotas.changes
        reading = self._quotas.read(self._default)
        self.problems = reading.problems
        self._queue.configure(reading.quotas, self._ledger.cluster, self.now())

    def _see_holders(self, seen: Changes) -> None:
        claims = self._ledger.claims
        for attempt in sorted(seen.attempts, key=str):
            self._see_held(job_id(attempt), claims.held_by(attempt), of=attempt)
        for uid in sorted(seen.pods):
            claim = claims.pods.get(uid)
            held = (claim.allocation,) if claim and claim.worker is None else ()
            self._see_held(pod_id(uid), held, of=uid)

    def _see_held(
        self, holder: JobId, held: tuple[Allocation, ...], *, of: AttemptKey | str
    ) -> None:
        """What has no GPUs is not the queue's business."""
        held = held if any(each.placement.devices or each.tickets for each in held) else ()
        if self._running.get(holder, ()) == held:
            return
        started = None
        if holder in self._running:
            running = self._queue.state.running.get(holder)
            started = running.started if running else None
            del self._running[holder]
            self._suppositions.forget(holder)
            self._queue.end(holder, self._ledger.cluster, self.now())
        if held:
            places = self._suppositions.places(holder, held)
            job, since = self._found(of, places)
            self._start(job, places, held, since=since if started is None else started)

    def _found(self, of: AttemptKey | str, places: Places) -> tuple[Job, float | None]:
        """Who was found running, and since when as far as anybody wrote it down."""
        if isinstance(of, AttemptKey):
            shown = self._ledger.jobs.shown(of.job_uid)
            current = shown if shown and shown.attempt == of else None
            job = holders.gang_job(of, places, current)
            started_at = current.started_at if current else None
            return job, started_at.timestamp() if started_at else None
        claim = self._ledger.claims.pods[of]
        return holders.pod_job(of, claim.namespace, claim.name, places[0]), None

    def _see_jobs(self, uids: Collection[str]) -> None:
        """A job that is gone, or was shown and may not wait, does not."""
        for uid in self._of_job.keys() & set(uids):
            shown = self._ledger.jobs.shown(uid)
            for job in self._of_job[uid].copy():
                number = self._waiting[job].ask.attempt.number
                if shown is None or not shown.may_wait or shown.attempt.number > number:
                    self._withdraw(job)
            self._see_preemption(uid)

    def _see_preemption(self, uid: str) -> None:
        """What stands in the status of one that waits: written by us, or before a restart."""
        shown = self._ledger.jobs.shown(uid)
        for job in self._of_job.get(uid, ()):
            if shown is None or shown.preemption is None:
                if self._preemptions.is_written(job):
                    self._release(job)
                continue
            gang = self._waiting[job].ask.gang
            victims, held = preemptions.read(shown.preemption, job, gang.request, shown.tickets)
            if len(held) != gang.workers:
                continue
            known = job in self._preemptions
            decision = Preempt(job, victims, self._suppositions.places(job, held))
            self._preemptions.written(decision, self.now())
            if not known:
                self._queue.reserve(decision, self._ledger.cluster, self.now())

    def _withdraw(self, job: JobId) -> None:
        self._no_longer_waits(job)
        self._queue.withdraw(job, self._ledger.cluster)

    def _no_longer_waits(self, job: JobId) -> None:
        self._preemptions.over(job)
        waiting = self._waiting.pop(job, None)
        if waiting is None:
            return
        self._capacity.remove(waiting.ask.attempt.namespace, waiting.ask.gang)
        uid = waiting.ask.attempt.job_uid
        self._of_job[uid].discard(job)
        if not self._of_job[uid]:
            del self._of_job[uid]

    def _plan(self, cluster: core.Cluster, job: Job) -> Places | None:
        waiting = self._waiting.get(job.id)
        policy = self._policies.named(waiting.ask.policy if waiting else None)
        if job.gang.workers == 1 and not job.gang.spread.same_clique:
            found = core.choose(cluster, job.gang.request, policy)
            return None if found is None else (found,)
        return core.choose_gang(cluster, job.gang, policy)


def _alike(before: GangAsk, ask: GangAsk) -> bool:
    """Whether it asks for the same; what is left until its deadline is less each time."""
    same = dataclasses.replace(ask, version=before.version, duration=before.duration)
    return same == before
