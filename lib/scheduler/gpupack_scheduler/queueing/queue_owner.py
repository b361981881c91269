# SPDX-License-Identifier: Apache-2.0
"""The owner of the queue: it decides, carries its decisions out, and delivers the notices.

Only the leader has an owner that acts. An admission holds places in the ledger until the watch
shows them written: like a plan, or, for a pod whose gate is opened, like filter's answer. If they
are not written the claims end, and with them the job's place in the queue: the operator submits it
again, or the watch still shows the pod.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterable
from math import inf
from typing import Final

from gpupack_crds.gpujob_status import Preemption
from gpupack_kubeclient import objects
from gpupack_placement import Cluster, Gang, NodeName, Placement
from gpupack_queue import Decisions, Job, JobId, Queue, Wait, place_by_policy
from gpupack_queue.window import reservation_of
from gpupack_scheduler.errors import NotReady
from gpupack_scheduler.ledger.claims import PodClaim
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.policies import Policies
from gpupack_scheduler.queueing.admissions import Admissions
from gpupack_scheduler.queueing.notices import Notice, OpenGate
from gpupack_scheduler.queueing.observed_queue import ObservedQueue, Places
from gpupack_scheduler.queueing.pending.request import GangRequest, job_id, waiting_pod
from gpupack_scheduler.queueing.pods import partial_groups
from gpupack_scheduler.queueing.pods.conditions import Eviction, Note
from gpupack_scheduler.queueing.pods.failing import FailedNodeActions
from gpupack_scheduler.queueing.pods.idling import IdlePod, IdlePodActions
from gpupack_scheduler.queueing.pods.run_limits import RunLimitActions
from gpupack_scheduler.queueing.turns import Notifiers, Orders
from gpupack_scheduler.requests.pod_request import PodRequest

MAX_ADMITTED: Final = 64
"""Maximum of admissions per cycle: other calls are answered in between."""

MAX_NOTIFIED: Final = 512
"""Maximum of attempts to end in one message to the operator; when these end, others follow."""

LOOK_SECONDS: Final = 1.0
"""Interval at which the queue considers jobs behind the next pods, while the maximum of pods is
being admitted: plans for more pods than can be admitted are useless."""


class QueueOwner:
    """The owner of one observed queue. No method awaits.

    Args:
        observed: the queue, from the API's objects.
        policies: the placement policies.
        notifiers: the receivers of notices.

    Attributes:
        observed: the same queue; read-only for other parts.
        look_at: time at which a decision may become due without an event; None: never.
    """

    def __init__(self, observed: ObservedQueue, policies: Policies, notifiers: Notifiers) -> None:
        self.observed, self._policies, self._notifiers = observed, policies, notifiers
        self._ledger = observed.ledger
        self._unshown: dict[str, AttemptKey] = {}
        """Attempts, by UID, that were submitted before the end of the previous one was shown."""
        self._admissions = Admissions(observed)
        self._idling = IdlePodActions(self._ledger, observed.quotas)
        self._failing = FailedNodeActions(self._ledger, observed.quotas)
        self._run_limits = RunLimitActions(self._ledger, observed.quotas)
        self._looked_at = -inf
        """Time at which jobs beyond the pods that may be admitted were last considered."""
        self._rests_tried: dict[JobId, float] = {}
        """Times at which the rest of an admission fitted nowhere."""
        self._goes_on = False
        """True if the last cycle ended before it had considered all pending jobs."""
        self.look_at: float | None = None

    @property
    def queue(self) -> Queue:
        """Return the queue; read-only."""
        return self.observed.queue

    def now(self) -> float:
        """Return the queue's time, which never goes back."""
        return self.observed.now()

    def see(self) -> None:
        """Apply the changes of ledger and quotas, and deliver the notices."""
        self._deliver(self.observed.see())
        for uid, attempt in tuple(self._unshown.items()):
            if not self._ledger.jobs.lags_behind(attempt):
                del self._unshown[uid]
                self._notifiers.turns.notify(attempt.namespace, attempt.job)

    def submit(self, ask: GangRequest) -> None:
        """Add an attempt to the queue, in place of earlier requests of its job.

        Raises:
            QueueFull: its namespace has as much in the queue as it may, or pods of this attempt
                still hold GPUs.
        """
        self.see()
        self._deliver(self.observed.submit(ask))

    def is_too_early(self, attempt: AttemptKey) -> bool:
        """Tell whether the end of the previous attempt is not yet shown here.

        Until then its last places count as held, and the reservation in its status is not known.
        The operator is notified when the end is shown.
        """
        if not self._ledger.jobs.lags_behind(attempt):
            return False
        self._unshown[attempt.job_uid] = attempt
        return True

    def admitted_gang(self, attempt: AttemptKey) -> Gang | None:
        """Return the request of an attempt that holds places; None if it holds none."""
        self.see()
        return self.observed.admitted_gang(attempt)

    def lead(self) -> None:
        """Begin or end to lead: all pending jobs are submitted again, or shown by the watch."""
        self.observed.withdraw_all()
        self._notifiers.turns.begin()

    def restart(self) -> None:
        """Rebuild the queue from the ledger's running jobs; pending jobs are submitted again."""
        self.observed.restart()
        self._admissions.clear()
        self._unshown.clear()
        self._notifiers.turns.begin()

    def forget_unknown(self) -> None:
        """Withdraw jobs whose GPUJob the watch does not show: it is gone."""
        self._deliver(self.observed.forget_unknown())

    def decide(self, *, asking: AttemptKey | None = None) -> bool:
        """Run one cycle that admits jobs; return whether more may be decided at once.

        `asking` is not notified of its turn: this call answers it. The cycle admits and preempts
        only as much as the operator can write while the places are held.
        """
        self.see()
        observed, now = self.observed, self.now()
        observed.operations.advance(now)
        self._admissions.advance()
        self._reserve_rests(now)
        self.queue.drain(observed.draining.movable())
        most = self._max_admissions(asking)
        if not most:
            self._order(settled=False)
            self._goes_on = True
            return False
        may_stop = observed.operations.may_decide
        found = self.queue.cycle(
            self._ledger.cluster,
            now,
            observed.plan,
            preempt=may_stop,
            max_admissions=most,
            excluded=observed.admitted_pods.full(),
        )
        self._goes_on = not found.complete
        is_complete = self._carry_out(found, asking)
        is_due = found.due_at is not None and found.due_at <= self.now()
        self._order(settled=not (found or is_due) and may_stop)
        self.look_at = found.due_at
        return bool(found) and is_complete

    def place(self, pod: PodRequest, nodes: Collection[NodeName]) -> Placement | PodClaim | Wait:
        """Return where a standalone pod may go now among these nodes, or why it may not.

        kube-scheduler keeps such a pod pending, and calls again. The caller holds a returned
        placement; a returned claim is already held, since the queue has just admitted the pod. A
        pod that was admitted before precedes all pending jobs.

        Raises:
            NotReady: the queue is still admitting other jobs, which go first.
        """
        if self.observed.admitted_pods.is_admitted(pod.uid):
            self.see()
        else:
            self.decide()
            held = self._ledger.claims.pods.get(pod.uid)
            if held is not None and held.placement.node in nodes:
                return held
            if self._goes_on:
                raise NotReady("others are let in first")
        asked = waiting_pod(pod, self.observed.quotas.run_limit(pod.namespace))
        evicts = self.observed.decisions.queue.preemption.pods
        visitor = dataclasses.replace(asked, preemptible=evicts)

        def plan(cluster: Cluster, job: Job) -> Places | None:
            """Place the pod among `nodes`; pending jobs are planned on all nodes."""
            if job.id != visitor.id:
                return self.observed.plan(cluster, job)
            return place_by_policy(self._policies.named(), cluster, job, candidates=nodes)

        found = self.queue.try_admit(visitor, self._ledger.cluster, self.now(), plan)
        return found if isinstance(found, Wait) else found[0]

    def preemption(self, attempt: AttemptKey) -> Preemption | None:
        """Return the preemption for an attempt, as its status will show it; None: there is none."""
        return self.observed.operations.preemption_of(attempt)

    def explain(self, attempt: AttemptKey) -> Wait:
        """Return why an attempt waits.

        Raises:
            NotHeld: it does not wait.
        """
        return self.observed.explain(job_id(attempt))

    def evictions(self) -> Iterable[Eviction]:
        """Return the pods that must end now.

        They end for preemptors, for time windows, for maintenance, because their node cannot take
        them, because they use no GPU, because one of their GPUs failed, or because they have run
        for too long.
        """
        return (
            *self.observed.operations.victims.evictions(),
            *self.observed.windows.evictions(self.queue),
            *self.observed.draining.evictions(self.queue, self.now()),
            *self.observed.admitted_pods.displaced(),
            *partial_groups.evictions(self.observed.submissions.groups, self._ledger, self.now()),
            *self._idling.evictions(self.queue, self.now()),
            *self._failing.evictions(self.queue),
            *self._run_limits.evictions(self.queue, self.now()),
        )

    def stranded_pods(self) -> list[Note]:
        """Return standalone pods whose only node cannot take them."""
        return [each.note for each in self.observed.admitted_pods.stranded(self.now())]

    def failed_pods(self) -> list[Note]:
        """Return standalone pods with a failed GPU."""
        return list(self._failing.notes(self.queue))

    def idle_pods(self) -> list[IdlePod]:
        """Return standalone pods that have used no GPU for longer than their cohort allows."""
        return list(self._idling.pods(self.queue, self.now()))

    @property
    def admits_pods(self) -> bool:
        """Tell whether the maximum of pods is being admitted, or more will be soon."""
        return self._goes_on or not self.observed.admitted_pods.free_slots()

    def explain_pod(self, pod: objects.Pod) -> str:
        """Return why a pod behind gpupack's gate waits; empty if it does not.

        A pod that has long lacked only GPUs is shown to kube-scheduler, since autoscalers read pods
        that it cannot place. A member of a pod group is not: it would start without the others.
        """
        job = self.observed.pending_id(pod.metadata.uid)
        waiting = self.observed.waiting.get(job)
        if waiting is None or job not in self.queue.state.pending:
            return self.observed.obstacle_of_pod(pod.metadata.uid)
        wait = self.observed.explain(job)
        after = self.observed.decisions.queue.notify_autoscaler_after_seconds
        if self.observed.submissions.groups.group_of(pod.metadata.uid) is not None:
            return wait.message
        if wait.lacks_only_gpus and after is not None and self.now() - waiting.asked_at >= after:
            self._deliver([OpenGate(pod, None)])
        return wait.message

    def _reserve_rests(self, now: float) -> None:
        """Reserve places for pod groups whose admission a predecessor carried out in part.

        All GPUs that it decided about are still free, so the rest fits unless a node is lost.
        """
        cluster, plan = self._ledger.cluster, self.observed.plan
        for job, ask in self.observed.waiting.pod_groups():
            is_due = now - self._rests_tried.get(job, -inf) >= LOOK_SECONDS
            if ask.completes and is_due and not self.queue.reserve_rest(job, cluster, now, plan):
                self._rests_tried[job] = now
        waiting = self.observed.waiting
        self._rests_tried = {job: at for job, at in self._rests_tried.items() if job in waiting}

    def _deliver(self, notices: Iterable[Notice]) -> None:
        self._notifiers.deliver(notices)

    def _order(self, *, settled: bool) -> None:
        """Notify the operator which attempts must end, move or grow, where no status says so."""
        observed = self.observed
        drained = itertools.chain(
            self._failing.attempts(self.queue),
            observed.draining.stopped(self.queue, self.now(), settled=settled),
        )
        operations = observed.operations
        stops = (*operations.victims.stops(), *observed.windows.stops(self.queue))
        moves = operations.moves.orders()
        grows = self._admissions.growing()
        notified = tuple(itertools.islice(drained, MAX_NOTIFIED))
        self._deliver(observed.notices.take())
        self._notifiers.turns.order(Orders(stops, notified, moves, grows))

    def _max_admissions(self, asking: AttemptKey | None) -> int:
        """Return how many jobs to admit now; 0: no job is considered."""
        room, now = min(self.observed.admitted_pods.at_once(), MAX_ADMITTED), self.now()
        if asking is None and now - self._looked_at < LOOK_SECONDS:
            return room
        self._looked_at = now
        return MAX_ADMITTED if self.observed.waiting.has_gangs else max(room, 1)

    def _carry_out(self, found: Decisions, asking: AttemptKey | None) -> bool:
        """Carry out the decisions of a cycle; return whether all were carried out.

        Preemptions, moves and consolidations are planned with all admissions of the cycle in place.
        They are one statement: if an admission is held back, it is discarded.
        """
        operations = self.observed.operations
        for given_up in found.cancelled:
            if reservation_of(given_up.job) is None:
                operations.cancel(given_up)
            else:
                self.queue.release(given_up.job, self._ledger.cluster, stuck=given_up.stuck)
                operations.preemptions.record_stuck(given_up.stuck)
        held_back = [
            each for each in found.admitted if not self._admissions.admit(each, asking=asking)
        ]
        if held_back:
            self.queue.discard(held_back, found.statement, self._ledger.cluster)
        else:
            operations.commit(found.statement, self.now(), asking=asking)
            for each in found.for_windows:
                self.queue.reserve_for_window(each, self.now())
                operations.preemptions.stopped.update(v.reason.value for v in each.victims)
        return not held_back
