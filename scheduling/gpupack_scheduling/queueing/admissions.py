# SPDX-License-Identifier: Apache-2.0
"""The queue's owner: tells it what has changed, does what it decides, and says why others wait.

    waits      an attempt that the operator has asked for; until it has its places, or ends, or
               nobody knows it. A pod of its own, as long as it is shown behind our gate alone
    runs       an attempt or a pod that holds GPUs by the ledger's claims; until it holds none

An admission holds places in the ledger until the watch shows them written: as a plan does, or as
filter's answer does for a pod whose gate is opened. Where they are not written the claims end, and
with them the job's place in the queue: its operator asks again, or the watch shows the pod still.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from typing import Final

import gpupack_core as core
from gpupack_core.queueing import (
    Admit,
    Job,
    JobId,
    Planner,
    Queue,
    Tenant,
    Wait,
    places_by,
    starving,
)
from gpupack_crds.gpujob_status import Preemption
from gpupack_kube import objects
from gpupack_scheduling.asks.pod_ask import PodAsk
from gpupack_scheduling.decisions import Decisions
from gpupack_scheduling.errors import AskInvalid, NotReady, QueueFull
from gpupack_scheduling.ledger.claims import PodClaim
from gpupack_scheduling.ledger.ledger import Ledger
from gpupack_scheduling.ledger.workers import AttemptKey
from gpupack_scheduling.policies import Policies
from gpupack_scheduling.queueing import averages, gate
from gpupack_scheduling.queueing.ask import (
    GangAsk,
    GatedAsk,
    extra_worker,
    job_id,
    pod_id,
    pod_uid,
    waiting_pod,
)
from gpupack_scheduling.queueing.conditions import Note
from gpupack_scheduling.queueing.consolidating import Consolidating
from gpupack_scheduling.queueing.draining import Draining
from gpupack_scheduling.queueing.eviction import Eviction
from gpupack_scheduling.queueing.failing import Failing
from gpupack_scheduling.queueing.growing import Growing
from gpupack_scheduling.queueing.hears import Hears
from gpupack_scheduling.queueing.idling import IdlePod, Idling
from gpupack_scheduling.queueing.learned import LearnedDurations
from gpupack_scheduling.queueing.let_in import LetIn
from gpupack_scheduling.queueing.moving import Moving
from gpupack_scheduling.queueing.preempting import Preempting
from gpupack_scheduling.queueing.quotas import QuotaStores
from gpupack_scheduling.queueing.running import RunningHolders
from gpupack_scheduling.queueing.turns import Orders
from gpupack_scheduling.queueing.waiting import WaitingAsks

UNKNOWN_SECONDS: Final = 60.0
"""A GPUJob that the watch has not shown for so long is none."""

MAX_UNWRITTEN: Final = 32
"""Admissions that the operator is to write at once: it asks for one after the other, and each is
held for some seconds alone."""

MAX_ADMITTED: Final = 64
"""By one cycle: other calls are answered in between."""

MAX_TOLD: Final = 512
"""Attempts that are to end of which the operator is told at once; those that it has ended make room
for others."""

LOOK_SECONDS: Final = 1.0
"""While as many pods are let in as there may be, those behind the next ones are looked at as often:
what is found for more pods than can go in is found in vain."""

Places = tuple[core.Placement, ...]


class Admissions:
    """Who waits, who is let in. Nothing here awaits.

    Args:
        ledger: what is held, and by whom.
        policies: where a gang goes.
        hears: of those whose turn has come.
        quotas: GPUQuotas and GPUCohorts; they count from the next look on.
        now: seconds since the epoch, by the API server's clock.
        decisions: how the queue is run, and within what an admission is to be written.
    """

    def __init__(
        self,
        ledger: Ledger,
        policies: Policies,
        hears: Hears,
        *,
        quotas: QuotaStores,
        now: Callable[[], float],
        decisions: Decisions,
    ) -> None:
        self._ledger, self._policies = ledger, policies
        self._hears = hears
        self._quotas, self._decisions = quotas, decisions
        self._clock, self._hold_seconds = now, decisions.plan_hold_seconds
        self._now = 0.0
        self._queue = Queue(decisions.queue.as_rules())
        self._configured, self._recalled = -1, False
        self.problems: Mapping[tuple[str, str], str] = {}
        """What of GPUQuotas and GPUCohorts does not count, by namespace and name."""
        self._waiting = WaitingAsks()
        self._learned = LearnedDurations(ledger.jobs, counts=decisions.queue.learn_durations)
        self._running = self._follow()
        self._unshown: dict[str, AttemptKey] = {}
        """By UID, attempts that asked before the end of the one before was shown."""
        self._unwritten: set[AttemptKey] = set()
        """Let in by us and not shown as written yet."""
        self._let_in = LetIn(ledger, hears.gates, decisions.observed_resources)
        self._preempting = Preempting(ledger, self._waiting, hears, hold_seconds=self._hold_seconds)
        self._draining = Draining(ledger)
        self._idling, self._failing = Idling(ledger, quotas), Failing(ledger, quotas)
        self._moving = Moving(ledger, self._draining, hold_seconds=self._hold_seconds)
        self._consolidating = Consolidating(ledger, self._preempting, self._moving)
        self._growing = Growing(ledger, hold_seconds=self._hold_seconds)
        self._looked_at = -inf
        """When it was last looked beyond the pods that may be let in."""
        self._goes_on = False
        """The last cycle ended before it had looked at all who wait."""
        self.look_at: float | None = None
        """When time alone may make a decision due; None: never."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def consolidating(self) -> Consolidating:
        """To be read."""
        return self._consolidating

    @property
    def preempting(self) -> Preempting:
        """To be read."""
        return self._preempting

    def kinds(self) -> Mapping[str, int]:
        """How many wait, of attempts of GPUJobs (gang) and of pods of their own (pod)."""
        gangs = sum(1 for _ in self._waiting.gangs())
        return {"gang": gangs, "pod": len(self._waiting) - gangs}

    def starving(self) -> Mapping[Tenant, float]:
        """Seconds for which a namespace's longest job waits within what its quota promises."""
        return starving(self._queue.state, self._ledger.cluster, self.now())

    @property
    def queue(self) -> Queue:
        """To be read."""
        return self._queue

    def now(self) -> float:
        """As the queue's time goes: never back."""
        self._now = max(self._now, self._clock())
        return self._now

    def submit(self, ask: GangAsk) -> None:
        """It waits since it came, as far as that is shown; what it asked for before is forgotten.

        Raises:
            QueueFull: its namespace has more in the queue than it may.
        """
        self.see()
        ask = dataclasses.replace(ask, estimate=self._learned.estimate(ask.attempt))
        job, uid = job_id(ask.attempt), ask.attempt.job_uid
        before = self._waiting.get(job)
        if before is not None and before.asks_for_the_same(ask):
            before.see_version(ask)
            return
        if job in self._running:
            raise QueueFull(
                "pods of this very attempt hold GPUs still; it waits until they are gone"
            )
        self._waiting.require_room(ask)
        for other, _ in self._waiting.of_job(uid):
            self._withdraw(other)
        self._waiting.add(ask, self.now())
        since = self.now() if ask.since is None else min(ask.since, self.now())
        self._queue.submit(ask.job, since)
        self._moving.returns(uid, self._queue)
        self._preempting.unasked.returns(uid, self._queue)
        self._see_preemption(uid)

    def admitted_gang(self, attempt: AttemptKey) -> core.Gang | None:
        """What an attempt asked for that holds places; None: it holds none."""
        self.see()
        running = self._queue.state.running.get(job_id(attempt))
        return running.job.gang if running else None

    def obstacle(self, ask: GangAsk) -> str:
        """Why it could not come into the queue; empty: it could."""
        return self._waiting.obstacle_to(ask)

    def is_too_early(self, attempt: AttemptKey) -> bool:
        """Whether the end of the attempt before it is not shown here yet; it is called when it is.

        Until then its last places count as held, and what its status reserves is not known.
        """
        if not self._ledger.jobs.is_behind(attempt):
            return False
        self._unshown[attempt.job_uid] = attempt
        return True

    def withdraw(self, uid: str) -> None:
        """No attempt of this GPUJob waits any more; of no effect where none does."""
        for job, _ in self._waiting.of_job(uid):
            self._withdraw(job)

    def withdraw_all(self) -> None:
        """Nobody waits any more: whoever does asks again, or is shown."""
        for job in self._waiting:
            self._withdraw(job)
        self._ledger.pods.see_gates()
        self._ledger.jobs.see_all()

    def begin_anew(self) -> None:
        """Forget who waits, and learn who runs from the ledger again; who waits asks."""
        self.withdraw_all()
        history = self._queue.state.books.history
        self._queue = Queue(self._decisions.queue.as_rules(), history=history)
        self._running = self._follow()
        self._configured = -1
        self._unwritten.clear()
        self._unshown.clear()
        self._preempting.unasked.clear()
        self._moving.clear()
        self._consolidating.clear()
        self._ledger.claims.see_all()
        self._hears.turns.begin()

    def see(self) -> None:
        """Take in what has changed in ledger and quotas."""
        self._see_quotas()
        seen = self._ledger.changes.take()
        self._learned.see(seen.jobs)
        for node in sorted(seen.nodes):
            self._queue.changed(node, self._ledger.cluster)
        for node in seen.freed:
            row = self._ledger.cluster.row(node)
            if row is not None:
                self._queue.freed(row)
        for attempt in self._running.see(seen, self.now()):
            self._see_lost(attempt)
        self._recall()
        self._see_jobs(seen.jobs)
        for uid in sorted(seen.gates):
            self._see_gate(uid)

    def decide(self, *, asking: AttemptKey | None = None) -> bool:
        """One cycle: let in whoever can be. Whether there may be more to decide at once.

        `asking` needs not hear of its turn: it is being answered. Only so many are let in, and
        stopped for, as the operator can write while their places are held.
        """
        self.see()
        self._preempting.end_overdue(self._queue, self.now())
        self._moving.end_overdue(self._queue, self.now())
        self._consolidating.look(self._queue, self.now())
        self._queue.drain(self._draining.movable())
        self._unwritten = {each for each in self._unwritten if self._ledger.is_planned(each)}
        most = self._most(asking)
        if not most:
            self._order(settled=False)
            self._goes_on = True
            return False
        may_stop = self._preempting.may_decide() and self._moving.may_decide()
        found = self._queue.cycle(
            self._ledger.cluster,
            self.now(),
            self._plan,
            preempt=may_stop,
            most=most,
            but=self._let_in.full(),
        )
        self._goes_on = not found.complete
        for given_up in found.given_up:
            if not self._moving.gives_up(given_up, self._queue):
                self._preempting.give_up(given_up, self._queue)
        held_back = [each for each in found.admitted if not self._admit(each, asking)]
        for admit in held_back:
            self._queue.failed(admit, self._ledger.cluster)
        if held_back and (found.preemptions or found.moves or found.consolidations):
            self._queue.not_carried_out()
        for preempt in () if held_back else found.preemptions:
            self._preempting.decided(preempt, self._queue, self.now(), asking=asking)
        for move in () if held_back else found.moves:
            self._moving.decided(move, self._queue, self.now())
        for each in () if held_back else found.consolidations:
            self._consolidating.decided(each, self._queue, self.now(), asking=asking)
        is_due = found.look_at is not None and found.look_at <= self.now()
        self._order(settled=not (found or is_due) and may_stop)
        self.look_at = found.look_at
        return bool(found) and not held_back

    def place(
        self, pod: PodAsk, nodes: Collection[core.NodeName]
    ) -> core.Placement | PodClaim | Wait:
        """Where a pod of its own may go now among these nodes, or why it may not.

        kube-scheduler keeps it waiting, and asks again. What is answered is the caller's to hold,
        but for a claim, which the queue has just given it. One that has been let in before goes
        before those who wait.

        Raises:
            NotReady: the queue is still letting in others, who go first.
        """
        if self._let_in.knows(pod.uid):
            self.see()
        else:
            self.decide()
            held = self._ledger.claims.pods.get(pod.uid)
            if held is not None and held.placement.node in nodes:
                return held
            if self._goes_on:
                raise NotReady("others are let in first")
        visitor = waiting_pod(pod)

        def plan(cluster: core.Cluster, job: Job) -> Places | None:
            """Room for those who wait is foreseen meanwhile, on all nodes."""
            if job.id != visitor.id:
                return self._plan(cluster, job)
            return places_by(self._policies.named(), cluster, job, candidates=nodes)

        found = self._queue.visit(visitor, self._ledger.cluster, self.now(), plan)
        return found if isinstance(found, Wait) else found[0]

    def preemption(self, attempt: AttemptKey) -> Preemption | None:
        """Who is to be stopped for it, as its status is to say."""
        return self._preempting.told(attempt)

    def evictions(self) -> Iterable[Eviction]:
        """Pods that are to end now.

        For others, for maintenance, as their node cannot take them, as they use no GPU, or as one
        of theirs failed.
        """
        return (
            *self._preempting.evictions(self._queue),
            *self._draining.evictions(self._queue, self.now()),
            *self._let_in.displaced(),
            *self._idling.evictions(self._queue, self.now()),
            *self._failing.evictions(self._queue),
        )

    def stranded_pods(self) -> list[Note]:
        """Return standalone pods whose only node cannot take them."""
        return [each.note for each in self._let_in.stranded(self.now())]

    def failed_pods(self) -> list[Note]:
        """Pods of their own one of whose GPUs failed."""
        return list(self._failing.notes(self._queue))

    def idle_pods(self) -> list[IdlePod]:
        """Pods of their own that use none of their GPUs for longer than their cohort allows."""
        return list(self._idling.pods(self._queue, self.now()))

    def why(self, attempt: AttemptKey) -> Wait:
        """Why it waits.

        Raises:
            NotHeld: it does not.
        """
        return self._queue.why(job_id(attempt), self._ledger.cluster, self.now(), self._plan)

    @property
    def lets_in(self) -> bool:
        """Whether as many pods are on their way in as there may be, or more will soon be."""
        return self._goes_on or not self._let_in.room()

    def why_pod(self, pod: objects.Pod) -> str:
        """Why a pod behind our gate waits; empty: it does not."""
        job = pod_id(pod.metadata.uid)
        waiting = self._waiting.get(job)
        if waiting is not None and job in self._queue.state.waiting:
            wait = self._queue.why(job, self._ledger.cluster, self.now(), self._plan)
            if wait.lacks_room:
                self._show_lack(pod, self.now() - waiting.asked_at)
            return wait.message
        return self._waiting.obstacle(pod.metadata.uid)

    def obstacle_of_pod(self, uid: str) -> str:
        """Why a pod behind our gate is not in the queue; empty: nothing keeps it out."""
        return self._waiting.obstacle(uid)

    def copy(self) -> tuple[Queue, core.Cluster]:
        """Queue and cluster as they are, for what-if questions in whatever thread."""
        self._queue.drain(self._draining.movable())
        foreseen = max(self._queue.rules.kept, 1)
        return self._queue.copy(foreseen=foreseen), self._ledger.cluster.fork()

    def planner(self, also: Mapping[JobId, str | None]) -> Planner:
        """Where those go who wait now, and others by the policies given; for a copy of the queue.

        Policies are as they are informed now.
        """
        policy_of = {job: self._waiting[job].ask.policy for job in self._waiting} | dict(also)
        by_name = self._policies.all()

        def plan(cluster: core.Cluster, job: Job) -> Places | None:
            name = policy_of[job.id] if job.id in policy_of else self._policy_of(job)
            return places_by(by_name[name], cluster, job)

        return plan

    def forget_unknown(self) -> None:
        """Nobody waits for a GPUJob that the watch does not show: it is gone.

        And who waits outside is looked at again: who was before him may be gone, too.
        """
        now = self.now()
        for job, waiting, ask in self._waiting.gangs():
            if self._ledger.jobs.shown(ask.attempt.job_uid):
                waiting.unknown_since = now
            elif now - waiting.unknown_since > UNKNOWN_SECONDS:
                self._withdraw(job)
        for uid in itertools.islice(self._waiting.outside(), MAX_ADMITTED):
            self._ledger.changes.gate(uid)

    def _order(self, *, settled: bool) -> None:
        """Tell the operator which attempts are to end, where no status says so."""
        drained = itertools.chain(
            self._failing.attempts(self._queue),
            self._draining.stopped(self._queue, self.now(), settled=settled),
        )
        stops, moves = self._preempting.stops(), self._moving.orders()
        grows = self._growing.orders(self._unwritten)
        told = tuple(itertools.islice(drained, MAX_TOLD))
        self._hears.turns.order(Orders(stops, told, moves, grows))

    def _most(self, asking: AttemptKey | None) -> int:
        """How many to let in now; 0: nobody is to be looked at."""
        room, now = min(self._let_in.at_once(), MAX_ADMITTED), self.now()
        if asking is None and now - self._looked_at < LOOK_SECONDS:
            return room
        self._looked_at = now
        return MAX_ADMITTED if self._waiting.has_gangs else max(room, 1)

    def _admit(self, admit: Admit, asking: AttemptKey | None) -> bool:
        """Whether it is let in now; else there are enough whose places are to be written."""
        if extra := extra_worker(admit.job):
            return self._admit_beside(admit, *extra)
        ask = self._waiting[admit.job].ask
        if isinstance(ask, GatedAsk):
            return self._admit_pod(ask, admit.placements[0])
        attempt = ask.attempt
        if attempt != asking and len(self._unwritten) >= MAX_UNWRITTEN:
            return False
        self._ledger.hold_plan(
            attempt, admit.placements, seconds=self._hold_seconds, version=ask.version
        )
        self._unwritten.add(attempt)
        self._no_longer_waits(admit.job)
        self._running.let_in(ask.job, attempt, self.now())
        if attempt != asking:
            self._hears.call(attempt)
        return True

    def _admit_beside(self, admit: Admit, gang: JobId, number: int) -> bool:
        attempt = self._running.attempt_of(gang)
        is_full = attempt not in self._unwritten and len(self._unwritten) >= MAX_UNWRITTEN
        if attempt is None or is_full:
            return False
        self._growing.admit(admit, attempt, number, self._running, self.now())
        self._unwritten.add(attempt)
        return True

    def _admit_pod(self, waiting: GatedAsk, place: core.Placement) -> bool:
        if not self._let_in.room():
            return False
        claim = self._let_in.admit(waiting, place)
        self._no_longer_waits(waiting.job.id)
        self._running.let_in_pod(waiting.job, claim, self.now())
        return True

    def _see_quotas(self) -> None:
        if self._configured == self._quotas.changes:
            return
        self._configured = self._quotas.changes
        reading = self._quotas.read(self._decisions.queue.default)
        self.problems = reading.problems
        self._queue.configure(reading.quotas, self._ledger.cluster, self.now())

    def _recall(self) -> None:
        """What tenants used before this process began.

        From then on it counts by itself: one that does not decide sees who runs, too.
        """
        if self._recalled:
            return
        self._recalled = True
        statuses = [each.status for each in self._quotas.cohorts.items.values()]
        for kept in averages.read(statuses):
            self._queue.recall(kept.averages, kept.at, self._ledger.cluster, self.now())

    def _see_lost(self, attempt: AttemptKey) -> None:
        """Its places were given away unwritten: its job is in no queue, and asks.

        What its status reserves for it is reserved again, before others are looked at.
        """
        uid = attempt.job_uid
        self._moving.see(uid, self._queue, self.now())
        self._preempting.unasked.see(uid, self._queue, self.now())
        shown = self._ledger.jobs.shown(uid)
        if shown is not None and shown.may_wait and shown.attempt.number < attempt.number:
            self._hears.call(attempt)

    def _see_gate(self, uid: str) -> None:
        """A pod came behind our gate, changed there or left it."""
        pods = self._ledger.pods
        gated, let_in = pods.gated.get(uid), pods.let_in.get(uid)
        if gated is not None and uid not in self._ledger.claims.pods:
            self._see_gated(gated)
            return
        self._withdraw(pod_id(uid))
        self._waiting.leave_outside(uid)
        if let_in is not None:
            self._let_in.see(let_in)
            self._running.see_pod(uid, self.now())
        elif gated is None:
            self._let_in.gone(uid)

    def _see_gated(self, pod: objects.Pod) -> None:
        observed = self._decisions.observed_resources
        try:
            ask = gate.ask_of(pod, observed, max_priority=self._decisions.max_priority)
        except AskInvalid:
            self._withdraw(pod_id(pod.metadata.uid))
            self._hears.gates.open(pod, None)
            return
        if not self._wait_at_gate(ask):
            return
        tickets = gate.tickets_of(pod, observed)
        self._preempting.see(ask.job.id, tickets, self._queue, self.now())

    def _wait_at_gate(self, ask: GatedAsk) -> bool:
        """Whether it waits in the queue; else it is outside, and looked at when one leaves."""
        before = self._waiting.get(ask.job.id)
        if before is not None and before.asks_for_the_same(ask):
            before.see_version(ask)
            return True
        self._withdraw(ask.job.id)
        self._waiting.leave_outside(ask.ask.uid)
        try:
            self._waiting.require_room(ask)
        except QueueFull:
            return False
        self._waiting.add(ask, self.now())
        was_held = ask.ask.uid in self._ledger.pods.held_by_others
        since = self.now() if was_held else min(ask.job.submitted, self.now())
        self._queue.submit(ask.job, since)
        return True

    def _show_lack(self, pod: objects.Pod, waited: float) -> None:
        """Whoever adds nodes looks at pods for which kube-scheduler finds none."""
        after = self._decisions.queue.show_lack_after_seconds
        if after is not None and waited >= after:
            self._hears.gates.open(pod, None)

    def _see_jobs(self, uids: Collection[str]) -> None:
        """A job that is gone, or was shown and may not wait, does not."""
        for uid in sorted(uids):
            self._moving.see(uid, self._queue, self.now())
        for uid in self._waiting.jobs() & set(uids):
            shown = self._ledger.jobs.shown(uid)
            for job, ask in self._waiting.of_job(uid):
                if shown is None or not shown.may_wait or shown.attempt.number > ask.attempt.number:
                    self._withdraw(job)
            self._see_preemption(uid)
        for uid in sorted(uids):
            self._preempting.unasked.see(uid, self._queue, self.now())
        for uid in sorted(self._unshown.keys() & set(uids)):
            if not self._ledger.jobs.is_behind(self._unshown[uid]):
                self._hears.call(self._unshown.pop(uid))

    def _see_preemption(self, uid: str) -> None:
        """What stands in the status of one that waits."""
        shown = self._ledger.jobs.shown(uid)
        if self._moving.is_over(uid, shown.preemption if shown else None):
            return
        for job, _ in self._waiting.of_job(uid):
            tickets = shown.tickets if shown else {}
            self._preempting.see(job, tickets, self._queue, self.now())

    def _withdraw(self, job: JobId) -> None:
        if self._no_longer_waits(job):
            self._queue.withdraw(job, self._ledger.cluster)

    def _no_longer_waits(self, job: JobId) -> bool:
        """Whether it did."""
        self._preempting.forget(job)
        if job not in self._waiting:
            return False
        if comes_in := self._waiting.remove(job):
            namespace, key = comes_in
            if (uid := pod_uid(key)) is not None:
                self._ledger.changes.gate(uid)
            else:
                self._hears.turns.give(namespace, key)
        return True

    def _follow(self) -> RunningHolders:
        evicts = self._decisions.queue.preemption.pods
        observed = self._decisions.observed_resources
        return RunningHolders(
            self._ledger, self._queue, self._learned, evicts=evicts, observed=observed
        )

    def _plan(self, cluster: core.Cluster, job: Job) -> Places | None:
        waiting = self._waiting.get(job.id)
        name = waiting.ask.policy if waiting else self._policy_of(job)
        return places_by(self._policies.named(name), cluster, job)

    def _policy_of(self, job: Job) -> str | None:
        """Of one that runs, and may be moved; None: the cluster's."""
        uid, _, _ = job.id.partition("/")
        shown = self._ledger.jobs.shown(uid) if job.movable else None
        name = shown.movable.spec.policy if shown and shown.movable else None
        return name if name in core.POLICIES else None
