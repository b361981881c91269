# SPDX-License-Identifier: Apache-2.0
"""The owner of the queue: it reports changes to it, carries out its decisions, and explains waits.

    pending    an attempt that the operator has submitted; until it has its places, or ends, or
               the watch does not know it. A standalone pod, while only gpupack's gate holds it
    running    an attempt or a pod that holds GPUs by the ledger's claims; until it holds none

An admission holds places in the ledger until the watch shows them written: like a plan, or, for a
pod whose gate is opened, like filter's answer. If they are not written the claims end, and with
them the job's place in the queue: the operator submits it again, or the watch still shows the pod.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from typing import Final

from gpupack_crds.gpujob_status import Preemption
from gpupack_kubeclient import objects
from gpupack_placement import POLICIES, Cluster, Gang, NodeName, Placement
from gpupack_queue import (
    Admit,
    Job,
    JobId,
    Planner,
    Queue,
    Tenant,
    Wait,
    place_by_policy,
    starving_seconds,
)
from gpupack_scheduler.decisions import Decisions
from gpupack_scheduler.errors import NotReady, QueueFull, RequestInvalid
from gpupack_scheduler.ledger.claims import PodClaim
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.policies import Policies
from gpupack_scheduler.queueing import averages, gate
from gpupack_scheduler.queueing.admitted_pods import AdmittedPods
from gpupack_scheduler.queueing.conditions import Note
from gpupack_scheduler.queueing.consolidating import ConsolidationActions
from gpupack_scheduler.queueing.draining import DrainActions
from gpupack_scheduler.queueing.eviction import Eviction
from gpupack_scheduler.queueing.failing import FailedNodeActions
from gpupack_scheduler.queueing.growing import GrowthActions
from gpupack_scheduler.queueing.idling import IdlePod, IdlePodActions
from gpupack_scheduler.queueing.learned import LearnedDurations
from gpupack_scheduler.queueing.moving import MoveActions
from gpupack_scheduler.queueing.notifiers import Notifiers
from gpupack_scheduler.queueing.pending import PendingRequests
from gpupack_scheduler.queueing.preempting import PreemptionActions
from gpupack_scheduler.queueing.quotas import QuotaStores
from gpupack_scheduler.queueing.request import (
    GangRequest,
    GatedPodRequest,
    extra_worker,
    job_id,
    pod_id,
    pod_uid,
    waiting_pod,
)
from gpupack_scheduler.queueing.running import RunningHolders
from gpupack_scheduler.queueing.turns import Orders
from gpupack_scheduler.requests.pod_request import PodRequest

UNKNOWN_SECONDS: Final = 60.0
"""Time after which a GPUJob that the watch has not shown counts as gone."""

MAX_UNWRITTEN: Final = 32
"""Maximum of admissions that the operator has yet to write: it submits one after the other, and
each is held for a few seconds only."""

MAX_ADMITTED: Final = 64
"""Maximum of admissions per cycle: other calls are answered in between."""

MAX_NOTIFIED: Final = 512
"""Maximum of attempts to end in one message to the operator; when these end, others follow."""

LOOK_SECONDS: Final = 1.0
"""Interval at which the queue considers jobs behind the next pods, while the maximum of pods is
being admitted: plans for more pods than can be admitted are useless."""

Places = tuple[Placement, ...]


class Admissions:
    """The pending jobs and the admissions. No method awaits.

    Args:
        ledger: the claims.
        policies: the placement policies.
        notifiers: the notifier of decisions.
        quotas: GPUQuotas and GPUCohorts; changes count from the next call of `see` on.
        now: seconds since the epoch, by the API server's clock.
        decisions: settings of the queue, and the time within which an admission must be written.
    """

    def __init__(
        self,
        ledger: Ledger,
        policies: Policies,
        notifiers: Notifiers,
        *,
        quotas: QuotaStores,
        now: Callable[[], float],
        decisions: Decisions,
    ) -> None:
        self._ledger, self._policies = ledger, policies
        self._notifiers = notifiers
        self._quotas, self._decisions = quotas, decisions
        self._clock, self._hold_seconds = now, decisions.plan_hold_seconds
        self._now = 0.0
        self._queue = Queue(decisions.queue.as_rules())
        self._configured, self._recalled = -1, False
        self.problems: Mapping[tuple[str, str], str] = {}
        """Parts of GPUQuotas and GPUCohorts that do not count, by namespace and name."""
        self._waiting = PendingRequests()
        self._learned = LearnedDurations(ledger.jobs, counts=decisions.queue.learn_durations)
        self._running = self._follow()
        self._unshown: dict[str, AttemptKey] = {}
        """Attempts, by UID, that were submitted before the end of the previous one was shown."""
        self._unwritten: set[AttemptKey] = set()
        """Attempts admitted here whose places are not yet shown as written."""
        self._admitted_pods = AdmittedPods(ledger, notifiers.gates, decisions.observed_resources)
        self._preempting = PreemptionActions(
            ledger, self._waiting, notifiers, hold_seconds=self._hold_seconds
        )
        self._draining = DrainActions(ledger)
        self._idling, self._failing = (
            IdlePodActions(ledger, quotas),
            FailedNodeActions(ledger, quotas),
        )
        self._moving = MoveActions(ledger, self._draining, hold_seconds=self._hold_seconds)
        self._consolidating = ConsolidationActions(ledger, self._preempting, self._moving)
        self._growing = GrowthActions(ledger, hold_seconds=self._hold_seconds)
        self._looked_at = -inf
        """Time at which jobs beyond the pods that may be admitted were last considered."""
        self._goes_on = False
        """True if the last cycle ended before it had considered all pending jobs."""
        self.look_at: float | None = None
        """Time at which a decision may become due without an event; None: never."""

    def __len__(self) -> int:
        """Return the number of pending jobs."""
        return len(self._waiting)

    @property
    def consolidating(self) -> ConsolidationActions:
        """Return the consolidations; read-only."""
        return self._consolidating

    @property
    def preempting(self) -> PreemptionActions:
        """Return the preemptions; read-only."""
        return self._preempting

    def kinds(self) -> Mapping[str, int]:
        """Return the number of pending attempts of GPUJobs (gang) and standalone pods (pod)."""
        gangs = sum(1 for _ in self._waiting.gangs())
        return {"gang": gangs, "pod": len(self._waiting) - gangs}

    def starving(self) -> Mapping[Tenant, float]:
        """Return the seconds for which each namespace's oldest job waits within nominal quota."""
        return starving_seconds(self._queue.state, self._ledger.cluster, self.now())

    @property
    def queue(self) -> Queue:
        """Return the queue; read-only."""
        return self._queue

    def cluster(self) -> Cluster:
        """Return the cluster as the ledger knows it now; it must not be changed."""
        return self._ledger.cluster

    def now(self) -> float:
        """Return the queue's time, which never goes back."""
        self._now = max(self._now, self._clock())
        return self._now

    def submit(self, ask: GangRequest) -> None:
        """Add an attempt to the queue, in place of earlier requests of its job.

        Its waiting time counts from `ask.since`, if that is known.

        Raises:
            QueueFull: its namespace has as much in the queue as it may, or pods of this attempt
                still hold GPUs.
        """
        self.see()
        ask = dataclasses.replace(ask, estimate=self._learned.estimate(ask.attempt))
        job, uid = job_id(ask.attempt), ask.attempt.job_uid
        before = self._waiting.get(job)
        if before is not None and before.is_same_request(ask):
            before.see_version(ask)
            return
        if job in self._running:
            raise QueueFull(
                "pods of this very attempt hold GPUs still; it waits until they are gone"
            )
        self._waiting.require_capacity(ask)
        for other, _ in self._waiting.of_job(uid):
            self._withdraw(other)
        self._waiting.add(ask, self.now())
        since = self.now() if ask.since is None else min(ask.since, self.now())
        self._queue.submit(ask.job, since)
        self._moving.returns(uid, self._queue)
        self._preempting.unasked.returns(uid, self._queue)
        self._see_preemption(uid)

    def admitted_gang(self, attempt: AttemptKey) -> Gang | None:
        """Return the request of an attempt that holds places; None if it holds none."""
        self.see()
        running = self._queue.state.running.get(job_id(attempt))
        return running.job.gang if running else None

    def obstacle(self, ask: GangRequest) -> str:
        """Return why a request could not enter the queue; empty if it could."""
        return self._waiting.obstacle_to(ask)

    def is_too_early(self, attempt: AttemptKey) -> bool:
        """Tell whether the end of the previous attempt is not yet shown here.

        Until then its last places count as held, and the reservation in its status is not known.
        The operator is notified when the end is shown.
        """
        if not self._ledger.jobs.lags_behind(attempt):
            return False
        self._unshown[attempt.job_uid] = attempt
        return True

    def withdraw(self, uid: str) -> None:
        """Remove all attempts of a GPUJob from the queue; no effect if there are none."""
        for job, _ in self._waiting.of_job(uid):
            self._withdraw(job)

    def withdraw_all(self) -> None:
        """Remove all pending jobs: each is submitted again, or shown by the watch."""
        for job in self._waiting:
            self._withdraw(job)
        self._ledger.pods.see_gates()
        self._ledger.jobs.see_all()

    def restart(self) -> None:
        """Rebuild the queue from the ledger's running jobs; pending jobs are submitted again."""
        self.withdraw_all()
        history = self._queue.state.quota.history
        self._queue = Queue(self._decisions.queue.as_rules(), history=history)
        self._running = self._follow()
        self._configured = -1
        self._unwritten.clear()
        self._unshown.clear()
        self._preempting.unasked.clear()
        self._moving.clear()
        self._consolidating.clear()
        self._ledger.claims.see_all()
        self._notifiers.turns.begin()

    def see(self) -> None:
        """Apply the changes of ledger and quotas."""
        self._see_quotas()
        seen = self._ledger.changes.take()
        self._learned.see(seen.jobs)
        for node in sorted(seen.nodes):
            self._queue.record_node_change(node, self._ledger.cluster)
        for node in seen.freed:
            row = self._ledger.cluster.row(node)
            if row is not None:
                self._queue.record_release(row)
        for attempt in self._running.see(seen, self.now()):
            self._see_lost(attempt)
        self._restore_usage()
        self._see_jobs(seen.jobs)
        for uid in sorted(seen.gates):
            self._see_gate(uid)

    def decide(self, *, asking: AttemptKey | None = None) -> bool:
        """Run one cycle that admits jobs; return whether more may be decided at once.

        `asking` is not notified of its turn: this call answers it. The cycle admits and preempts
        only as much as the operator can write while the places are held.
        """
        self.see()
        self._preempting.end_overdue(self._queue, self.now())
        self._moving.end_overdue(self._queue, self.now())
        self._consolidating.run(self._queue, self.now())
        self._queue.drain(self._draining.movable())
        self._unwritten = {each for each in self._unwritten if self._ledger.is_planned(each)}
        most = self._max_admissions(asking)
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
            max_admissions=most,
            excluded=self._admitted_pods.full(),
        )
        self._goes_on = not found.complete
        for given_up in found.cancelled:
            if not self._moving.cancel(given_up, self._queue):
                self._preempting.cancel(given_up, self._queue)
        held_back = [each for each in found.admitted if not self._admit(each, asking)]
        for admit in held_back:
            self._queue.revert_admission(admit, self._ledger.cluster)
        if held_back and (found.preemptions or found.moves or found.consolidations):
            self._queue.discard_decisions()
        for preempt in () if held_back else found.preemptions:
            self._preempting.decided(preempt, self._queue, self.now(), asking=asking)
        for move in () if held_back else found.moves:
            self._moving.decided(move, self._queue, self.now())
        for each in () if held_back else found.consolidations:
            self._consolidating.decided(each, self._queue, self.now(), asking=asking)
        is_due = found.due_at is not None and found.due_at <= self.now()
        self._order(settled=not (found or is_due) and may_stop)
        self.look_at = found.due_at
        return bool(found) and not held_back

    def place(self, pod: PodRequest, nodes: Collection[NodeName]) -> Placement | PodClaim | Wait:
        """Return where a standalone pod may go now among these nodes, or why it may not.

        kube-scheduler keeps such a pod pending, and calls again. The caller holds a returned
        placement; a returned claim is already held, since the queue has just admitted the pod. A
        pod that was admitted before precedes all pending jobs.

        Raises:
            NotReady: the queue is still admitting other jobs, which go first.
        """
        if self._admitted_pods.is_admitted(pod.uid):
            self.see()
        else:
            self.decide()
            held = self._ledger.claims.pods.get(pod.uid)
            if held is not None and held.placement.node in nodes:
                return held
            if self._goes_on:
                raise NotReady("others are let in first")
        visitor = waiting_pod(pod)

        def plan(cluster: Cluster, job: Job) -> Places | None:
            """Place the pod among `nodes`; pending jobs are planned on all nodes."""
            if job.id != visitor.id:
                return self._plan(cluster, job)
            return place_by_policy(self._policies.named(), cluster, job, candidates=nodes)

        found = self._queue.try_admit(visitor, self._ledger.cluster, self.now(), plan)
        return found if isinstance(found, Wait) else found[0]

    def preemption(self, attempt: AttemptKey) -> Preemption | None:
        """Return the preemption for an attempt, as its status will show it; None: there is none."""
        return self._preempting.preemption_of(attempt)

    def evictions(self) -> Iterable[Eviction]:
        """Return the pods that must end now.

        They end for preemptors, for maintenance, because their node cannot take them, because they
        use no GPU, or because one of their GPUs failed.
        """
        return (
            *self._preempting.evictions(self._queue),
            *self._draining.evictions(self._queue, self.now()),
            *self._admitted_pods.displaced(),
            *self._idling.evictions(self._queue, self.now()),
            *self._failing.evictions(self._queue),
        )

    def stranded_pods(self) -> list[Note]:
        """Return standalone pods whose only node cannot take them."""
        return [each.note for each in self._admitted_pods.stranded(self.now())]

    def failed_pods(self) -> list[Note]:
        """Return standalone pods with a failed GPU."""
        return list(self._failing.notes(self._queue))

    def idle_pods(self) -> list[IdlePod]:
        """Return standalone pods that have used no GPU for longer than their cohort allows."""
        return list(self._idling.pods(self._queue, self.now()))

    def explain(self, attempt: AttemptKey) -> Wait:
        """Return why an attempt waits.

        Raises:
            NotHeld: it does not wait.
        """
        return self._queue.explain(job_id(attempt), self._ledger.cluster, self.now(), self._plan)

    @property
    def admits_pods(self) -> bool:
        """Tell whether the maximum of pods is being admitted, or more will be soon."""
        return self._goes_on or not self._admitted_pods.free_slots()

    def explain_pod(self, pod: objects.Pod) -> str:
        """Return why a pod behind gpupack's gate waits; empty if it does not."""
        job = pod_id(pod.metadata.uid)
        waiting = self._waiting.get(job)
        if waiting is not None and job in self._queue.state.pending:
            wait = self._queue.explain(job, self._ledger.cluster, self.now(), self._plan)
            if wait.lacks_only_gpus:
                self._notify_autoscaler(pod, self.now() - waiting.asked_at)
            return wait.message
        return self._waiting.obstacle(pod.metadata.uid)

    def obstacle_of_pod(self, uid: str) -> str:
        """Return why a pod behind gpupack's gate is not in the queue; empty: no reason is known."""
        return self._waiting.obstacle(uid)

    def copy(self) -> tuple[Queue, Cluster]:
        """Return copies of queue and cluster, for what-if questions in any thread."""
        self._queue.drain(self._draining.movable())
        foreseen = max(self._queue.rules.max_reservations, 1)
        return self._queue.copy(max_reservations=foreseen), self._ledger.cluster.fork()

    def planner(self, also: Mapping[JobId, str | None]) -> Planner:
        """Return a planner of pending jobs and of those in `also`, for a copy of the queue.

        `also` has the policies of other jobs. Policies have the present forecast.
        """
        policy_of = {job: self._waiting[job].ask.policy for job in self._waiting} | dict(also)
        by_name = self._policies.all()

        def plan(cluster: Cluster, job: Job) -> Places | None:
            name = policy_of[job.id] if job.id in policy_of else self._policy_of(job)
            return place_by_policy(by_name[name], cluster, job)

        return plan

    def forget_unknown(self) -> None:
        """Withdraw jobs whose GPUJob the watch does not show: it is gone.

        Pods outside the queue are checked again, because pods before them may be gone, too.
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
        """Notify the operator which attempts must end, move or grow, where no status says so."""
        drained = itertools.chain(
            self._failing.attempts(self._queue),
            self._draining.stopped(self._queue, self.now(), settled=settled),
        )
        stops, moves = self._preempting.stops(), self._moving.orders()
        grows = self._growing.orders(self._unwritten)
        notified = tuple(itertools.islice(drained, MAX_NOTIFIED))
        self._notifiers.turns.order(Orders(stops, notified, moves, grows))

    def _max_admissions(self, asking: AttemptKey | None) -> int:
        """Return how many jobs to admit now; 0: no job is considered."""
        room, now = min(self._admitted_pods.at_once(), MAX_ADMITTED), self.now()
        if asking is None and now - self._looked_at < LOOK_SECONDS:
            return room
        self._looked_at = now
        return MAX_ADMITTED if self._waiting.has_gangs else max(room, 1)

    def _admit(self, admit: Admit, asking: AttemptKey | None) -> bool:
        """Admit a job; return False if enough admissions are yet to be written."""
        if extra := extra_worker(admit.job):
            return self._admit_extra_worker(admit, *extra)
        ask = self._waiting[admit.job].ask
        if isinstance(ask, GatedPodRequest):
            return self._admit_pod(ask, admit.placements[0])
        attempt = ask.attempt
        if attempt != asking and len(self._unwritten) >= MAX_UNWRITTEN:
            return False
        self._ledger.hold_plan(
            attempt, admit.placements, seconds=self._hold_seconds, version=ask.version
        )
        self._unwritten.add(attempt)
        self._remove_pending(admit.job)
        self._running.add_gang(ask.job, attempt, self.now())
        if attempt != asking:
            self._notifiers.call(attempt)
        return True

    def _admit_extra_worker(self, admit: Admit, gang: JobId, number: int) -> bool:
        attempt = self._running.attempt_of(gang)
        is_full = attempt not in self._unwritten and len(self._unwritten) >= MAX_UNWRITTEN
        if attempt is None or is_full:
            return False
        self._growing.admit(admit, attempt, number, self._running, self.now())
        self._unwritten.add(attempt)
        return True

    def _admit_pod(self, waiting: GatedPodRequest, place: Placement) -> bool:
        if not self._admitted_pods.free_slots():
            return False
        claim = self._admitted_pods.admit(waiting, place)
        self._remove_pending(waiting.job.id)
        self._running.add_pod(waiting.job, claim, self.now())
        return True

    def _see_quotas(self) -> None:
        if self._configured == self._quotas.changes:
            return
        self._configured = self._quotas.changes
        reading = self._quotas.read(self._decisions.queue.default)
        self.problems = reading.problems
        self._queue.configure(reading.quotas, self._ledger.cluster, self.now())

    def _restore_usage(self) -> None:
        """Recall what tenants used before this process started.

        From then on the queue counts usage by itself: a process that does not decide also sees
        which jobs run.
        """
        if self._recalled:
            return
        self._recalled = True
        statuses = [each.status for each in self._quotas.cohorts.items.values()]
        for kept in averages.read(statuses):
            self._queue.restore_usage(kept.averages, kept.at, self._ledger.cluster, self.now())

    def _see_lost(self, attempt: AttemptKey) -> None:
        """Restore the state of an attempt whose places were released unwritten, and notify its job.

        The job is in no queue and is submitted again. The reservation in its status is restored
        before other jobs are considered.
        """
        uid = attempt.job_uid
        self._moving.see(uid, self._queue, self.now())
        self._preempting.unasked.see(uid, self._queue, self.now())
        shown = self._ledger.jobs.shown(uid)
        if shown is not None and shown.may_wait and shown.attempt.number < attempt.number:
            self._notifiers.call(attempt)

    def _see_gate(self, uid: str) -> None:
        """Update a pod that came behind gpupack's gate, changed there or left it."""
        pods = self._ledger.pods
        gated, let_in = pods.gated.get(uid), pods.let_in.get(uid)
        if gated is not None and uid not in self._ledger.claims.pods:
            self._see_gated(gated)
            return
        self._withdraw(pod_id(uid))
        self._waiting.leave_outside(uid)
        if let_in is not None:
            self._admitted_pods.see(let_in)
            self._running.see_pod(uid, self.now())
        elif gated is None:
            self._admitted_pods.gone(uid)

    def _see_gated(self, pod: objects.Pod) -> None:
        observed = self._decisions.observed_resources
        try:
            ask = gate.ask_of(pod, observed, max_priority=self._decisions.max_priority)
        except RequestInvalid:
            self._withdraw(pod_id(pod.metadata.uid))
            self._notifiers.gates.open(pod, None)
            return
        if not self._wait_at_gate(ask):
            return
        tickets = gate.tickets_of(pod, observed)
        self._preempting.see(ask.job.id, tickets, self._queue, self.now())

    def _wait_at_gate(self, ask: GatedPodRequest) -> bool:
        """Add a pod to the queue; return False if it stays outside until another job leaves."""
        before = self._waiting.get(ask.job.id)
        if before is not None and before.is_same_request(ask):
            before.see_version(ask)
            return True
        self._withdraw(ask.job.id)
        self._waiting.leave_outside(ask.ask.uid)
        try:
            self._waiting.require_capacity(ask)
        except QueueFull:
            return False
        self._waiting.add(ask, self.now())
        was_held = ask.ask.uid in self._ledger.pods.held_by_others
        since = self.now() if was_held else min(ask.job.submitted, self.now())
        self._queue.submit(ask.job, since)
        return True

    def _notify_autoscaler(self, pod: objects.Pod, waited: float) -> None:
        """Show a pod to kube-scheduler, since autoscalers read pods that it cannot place."""
        after = self._decisions.queue.notify_autoscaler_after_seconds
        if after is not None and waited >= after:
            self._notifiers.gates.open(pod, None)

    def _see_jobs(self, uids: Collection[str]) -> None:
        """Withdraw jobs that are gone or may not wait; update moves and preemptions."""
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
            if not self._ledger.jobs.lags_behind(self._unshown[uid]):
                self._notifiers.call(self._unshown.pop(uid))

    def _see_preemption(self, uid: str) -> None:
        """Apply the preemption in the status of a pending job."""
        shown = self._ledger.jobs.shown(uid)
        if self._moving.is_over(uid, shown.preemption if shown else None):
            return
        for job, _ in self._waiting.of_job(uid):
            tickets = shown.tokens if shown else {}
            self._preempting.see(job, tickets, self._queue, self.now())

    def _withdraw(self, job: JobId) -> None:
        if self._remove_pending(job):
            self._queue.withdraw(job, self._ledger.cluster)

    def _remove_pending(self, job: JobId) -> bool:
        """Remove a pending job; return whether it was one."""
        self._preempting.forget(job)
        if job not in self._waiting:
            return False
        if comes_in := self._waiting.remove(job):
            namespace, key = comes_in
            if (uid := pod_uid(key)) is not None:
                self._ledger.changes.gate(uid)
            else:
                self._notifiers.turns.notify(namespace, key)
        return True

    def _follow(self) -> RunningHolders:
        evicts = self._decisions.queue.preemption.pods
        observed = self._decisions.observed_resources
        return RunningHolders(
            self._ledger, self._queue, self._learned, evicts=evicts, observed=observed
        )

    def _plan(self, cluster: Cluster, job: Job) -> Places | None:
        waiting = self._waiting.get(job.id)
        name = waiting.ask.policy if waiting else self._policy_of(job)
        return place_by_policy(self._policies.named(name), cluster, job)

    def _policy_of(self, job: Job) -> str | None:
        """Return the policy of a running job that may move; None: the cluster's."""
        uid, _, _ = job.id.partition("/")
        shown = self._ledger.jobs.shown(uid) if job.movable else None
        name = shown.movable.spec.policy if shown and shown.movable else None
        return name if name in POLICIES else None
