# SPDX-License-Identifier: Apache-2.0
"""Jobs that enter and leave the queue: requests of the operator, and standalone pods at their gate.

A GPUJob's attempt is pending from its request until it has its places, or ends, or the watch does
not know it. A pod is pending while only gpupack's gate holds it.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from gpupack_crds.gpujob_status import RunLimit
from gpupack_kubeclient import objects
from gpupack_queue import JobId, Queue
from gpupack_scheduler.decisions import Decisions
from gpupack_scheduler.errors import QueueFull, RequestInvalid
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.notices import NewAnswer, Notices, OpenGate
from gpupack_scheduler.queueing.operations.ongoing import Ongoing
from gpupack_scheduler.queueing.operations.operation import Event
from gpupack_scheduler.queueing.pending import gate
from gpupack_scheduler.queueing.pending.pending_requests import PendingRequests
from gpupack_scheduler.queueing.pending.pod_groups import PodGroups
from gpupack_scheduler.queueing.pending.request import (
    GangRequest,
    GatedPodRequest,
    PodGroupRequest,
    QueueRequest,
    gang_of,
    is_group,
    pod_id,
    pod_uid,
)
from gpupack_scheduler.requests.pod_groups import GroupKey, labelled, membership_of

UNKNOWN_SECONDS: Final = 60.0
"""Time after which a GPUJob that the watch has not shown counts as gone."""

MAX_RETRIED_PODS: Final = 64
"""Maximum of pods outside the queue that are checked again at a time."""

LimitOf: TypeAlias = Callable[[str], RunLimit | None]


class Submissions:
    """The pending jobs of one queue.

    Args:
        ledger: GPUJobs and pods from the watch.
        queue: the queue.
        waiting: the pending requests.
        operations: preemptions for pending jobs, and moves of jobs that come back.
        notices: what others must learn.
        decisions: settings of the requests of pods.

    Attributes:
        groups: members of pod groups behind the gate.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: Queue,
        waiting: PendingRequests,
        operations: Ongoing,
        notices: Notices,
        decisions: Decisions,
    ) -> None:
        self._ledger, self._queue, self._waiting = ledger, queue, waiting
        self._operations, self._notices, self._decisions = operations, notices, decisions
        self.groups = PodGroups(
            ledger, decisions.observed_resources, max_priority=decisions.max_priority
        )
        self._of_group: dict[GroupKey, set[JobId]] = {}
        """Jobs of pod groups that wait."""

    def submit(self, ask: GangRequest, now: float) -> None:
        """Add an attempt, in place of earlier requests of its GPUJob.

        Raises:
            QueueFull: its namespace has as much in the queue as it may.
        """
        uid = ask.attempt.job_uid
        self._waiting.require_capacity(ask)
        self.withdraw_job(uid)
        self._add(ask, now if ask.since is None else min(ask.since, now), now)
        self._operations.see_submitted(uid, now)

    def withdraw_job(self, uid: str) -> None:
        """Withdraw all attempts of a GPUJob."""
        for job, _ in self._waiting.of_job(uid):
            self.withdraw(job)

    def withdraw(self, job: JobId) -> None:
        """Withdraw a job; no effect if it does not wait."""
        if self._remove(job, Event.WITHDRAWN):
            self._queue.withdraw(job, self._ledger.cluster)

    def start(self, job: JobId) -> None:
        """Remove a job that has its places. Its start is reported by what it holds."""
        self._remove(job, Event.STARTED)

    def see_jobs(self, uids: Collection[str], now: float) -> None:
        """Withdraw GPUJobs that are gone or may not wait; update their preemptions."""
        for uid in self._waiting.jobs() & set(uids):
            shown = self._ledger.jobs.shown(uid)
            for job, ask in self._waiting.of_job(uid):
                if shown is None or not shown.may_wait or shown.attempt.number > ask.attempt.number:
                    self.withdraw(job)
            self._operations.see_pending(uid, now)

    def see_gate(self, uid: str, now: float, limit_of: LimitOf) -> objects.Pod | None:
        """Update a pod that came behind gpupack's gate, changed there or left it.

        Return the pod if it was admitted and is not bound, as far as is known. `limit_of` returns
        the maximum run time of a namespace's pods.
        """
        pods = self._ledger.pods
        gated = pods.gated.get(uid)
        label = labelled(gated) if gated is not None else None
        if label is None:
            self.groups.leave(uid)
        let_in = pods.let_in.get(uid)
        if let_in is None:
            self.groups.leave_let_in(uid)
        if gated is not None and label is not None:
            if self._waits_alone(pod_id(uid)):
                self.withdraw(pod_id(uid))
            self._waiting.leave_outside(uid)
            self.groups.see(gated, label, limit_of(gated.metadata.namespace))
            return None
        if gated is not None and uid not in self._ledger.claims.pods:
            self._see_gated(gated, now, limit_of(gated.metadata.namespace))
            return None
        self.withdraw(pod_id(uid))
        self._waiting.leave_outside(uid)
        if let_in is not None:
            self.groups.see_let_in(let_in, membership_of(let_in.metadata))
        return let_in

    def see_groups(self, now: float) -> None:
        """Submit and withdraw what has changed of pod groups."""
        victims, claims = self._queue.state.running_victims(), self._ledger.claims
        ending = (gang_of(claims, job) for job in victims)
        self.groups.see_ending({gang for gang in ending if gang is not None})
        for key in self.groups.take_changed():
            found = self.groups.waiting(key, now)
            requests = (*found.singles, *((found.gang,) if found.gang else ()))
            wanted = {ask.job.id: ask for ask in requests}
            for job in self._of_group.pop(key, set()) - wanted.keys():
                if not self._waits_alone(job):
                    self.withdraw(job)
            for job, ask in wanted.items():
                self._of_group.setdefault(key, set()).add(job)
                self._see_member(ask, now)

    def pending_id(self, uid: str) -> JobId:
        """Return the ID of the job in which a pod behind the gate waits."""
        key = self.groups.group_of(uid)
        for job in self._of_group.get(key, ()) if key else ():
            waiting = self._waiting.get(job)
            ask = waiting.ask if waiting else None
            if isinstance(ask, PodGroupRequest) and any(m.ask.uid == uid for m in ask.members):
                return job
        return pod_id(uid)

    def forget_groups(self) -> None:
        """Forget which jobs of pod groups wait: all are withdrawn."""
        self._of_group.clear()

    def forget_unknown(self, now: float) -> None:
        """Withdraw jobs whose GPUJob the watch does not show: it is gone.

        Pods outside the queue are checked again, because pods before them may be gone, too.
        """
        for job, waiting, ask in self._waiting.gangs():
            if self._ledger.jobs.shown(ask.attempt.job_uid):
                waiting.unknown_since = now
            elif now - waiting.unknown_since > UNKNOWN_SECONDS:
                self.withdraw(job)
        for uid in itertools.islice(self._waiting.outside(), MAX_RETRIED_PODS):
            self._ledger.changes.gate(uid)
        self.groups.retry_all_full()

    def _waits_alone(self, job: JobId) -> bool:
        """Tell whether a job is a pod that is no member of a group."""
        waiting = self._waiting.get(job)
        ask = waiting.ask if waiting else None
        return isinstance(ask, GatedPodRequest) and ask.joins is None

    def _remove(self, job: JobId, event: Event) -> bool:
        """Remove a job that starts or is withdrawn; return whether it was pending."""
        self._operations.forget(job, event)
        if job not in self._waiting:
            return False
        if comes_in := self._waiting.remove(job):
            namespace, key = comes_in
            self.groups.retry_full(namespace)
            if (uid := pod_uid(key)) is not None:
                self._ledger.changes.gate(uid)
            elif not is_group(key):
                self._notices.add(NewAnswer(namespace, key))
        return True

    def _add(self, ask: QueueRequest, since: float, now: float) -> None:
        self._waiting.add(ask, now)
        job = ask.job
        if not isinstance(ask, GangRequest):
            job = dataclasses.replace(job, preemptible=self._decisions.queue.preemption.pods)
        self._queue.submit(job, since)

    def _see_gated(self, pod: objects.Pod, now: float, limit: RunLimit | None) -> None:
        observed, most = self._decisions.observed_resources, self._decisions.max_priority
        try:
            ask = gate.ask_of(pod, observed, max_priority=most, limit=limit)
        except RequestInvalid:
            self.withdraw(pod_id(pod.metadata.uid))
            self._notices.add(OpenGate(pod, None))
            return
        if self._wait_at_gate(ask, now):
            tickets = gate.tickets_of(pod, observed)
            self._operations.preemptions.see(ask.job.id, [tickets], now)

    def _see_member(self, ask: PodGroupRequest | GatedPodRequest, now: float) -> None:
        """Add the members of a group that start together, or one that joins it later."""
        job = ask.job
        before = self._waiting.get(job.id)
        if before is not None and before.is_same_request(ask):
            before.see_version(ask)
        else:
            self.withdraw(job.id)
            try:
                self._waiting.require_capacity(ask)
            except QueueFull as error:
                self.groups.see_full(ask, str(error))
                return
            self._add(ask, min(job.submitted, now), now)
        members = ask.members if isinstance(ask, PodGroupRequest) else (ask,)
        observed = self._decisions.observed_resources
        tickets = (gate.tickets_of(each.pod, observed) for each in members)
        self._operations.preemptions.see(job.id, tickets, now)

    def _wait_at_gate(self, ask: GatedPodRequest, now: float) -> bool:
        """Add a pod to the queue; return False if it stays outside until another job leaves."""
        before = self._waiting.get(ask.job.id)
        if before is not None and before.is_same_request(ask):
            before.see_version(ask)
            return True
        self.withdraw(ask.job.id)
        self._waiting.leave_outside(ask.ask.uid)
        try:
            self._waiting.require_capacity(ask)
        except QueueFull:
            return False
        was_held = ask.ask.uid in self._ledger.pods.held_by_others
        self._add(ask, now if was_held else min(ask.job.submitted, now), now)
        return True
