# SPDX-License-Identifier: Apache-2.0
"""The queue as the API's objects show it: it reports changes to `Queue` and decides nothing.

    claims of the ledger                 ─► running jobs
    requests of the operator, gated pods ─► pending jobs
    statuses and annotations             ─► preemptions and moves
    GPUQuotas and GPUCohorts             ─► quotas, averages
    GPUReservations                      ─► time windows

The leader, its standbys and the API server observe the same queue. Each change may have notices for
the operator or for pods. The leader delivers them (queue_owner.py); the others have no use for
them, since all is seen again when a process begins to lead.
"""

import dataclasses
from collections.abc import Callable, Mapping

from gpupack_placement import POLICIES, Cluster, Gang, NodeName, Placement
from gpupack_queue import (
    Job,
    JobId,
    Planner,
    Queue,
    ReservationId,
    Tenant,
    Wait,
    WindowReport,
    place_by_policy,
    starving_seconds,
)
from gpupack_scheduler.decisions import Decisions
from gpupack_scheduler.errors import QueueFull
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.policies import Policies
from gpupack_scheduler.queueing.notices import Notice, Notices
from gpupack_scheduler.queueing.operations.ongoing import Ongoing
from gpupack_scheduler.queueing.pending.pending_requests import PendingRequests
from gpupack_scheduler.queueing.pending.pod_groups import PodGroupReason
from gpupack_scheduler.queueing.pending.request import GangRequest, QueueRequest, job_id
from gpupack_scheduler.queueing.pods.admitted_pods import AdmittedPods
from gpupack_scheduler.queueing.pods.draining import DrainActions
from gpupack_scheduler.queueing.quotas import averages
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.queueing.running.running_holders import RunningHolders
from gpupack_scheduler.queueing.running.shown_jobs import LearnedDurations
from gpupack_scheduler.queueing.submissions import Submissions
from gpupack_scheduler.queueing.windows.reserved_windows import Windows

Places = tuple[Placement, ...]


class ObservedQueue:
    """The observed queue. No method awaits.

    Args:
        ledger: the claims.
        policies: the placement policies.
        quotas: GPUQuotas and GPUCohorts; changes count from the next call of `see` on.
        now: seconds since the epoch, by the API server's clock.
        decisions: settings of the queue.

    Attributes:
        queue: the queue; read-only for all but its owner.
        waiting: the pending requests.
        notices: notices of the present call.
        problems: parts of GPUQuotas and GPUCohorts that do not count, by namespace and name.
        windows: the windows of GPUReservations.
    """

    def __init__(
        self,
        ledger: Ledger,
        policies: Policies,
        quotas: QuotaStores,
        *,
        now: Callable[[], float],
        decisions: Decisions,
    ) -> None:
        self.ledger, self.quotas, self.decisions = ledger, quotas, decisions
        self._policies, self._clock, self._now = policies, now, 0.0
        self._configured, self._recalled = -1, False
        self.problems: Mapping[tuple[str, str], str] = {}
        self.notices, self.waiting = Notices(), PendingRequests()
        self._learned = LearnedDurations(ledger.jobs, counts=decisions.queue.learn_durations)
        self.admitted_pods = AdmittedPods(ledger, decisions.observed_resources)
        self.draining = DrainActions(ledger)
        self.windows = Windows(quotas, ledger)
        self.queue = Queue(decisions.queue.as_rules())
        self.operations = Ongoing(
            ledger,
            self.queue,
            self.waiting,
            self.notices,
            self.draining,
            hold_seconds=decisions.plan_hold_seconds,
        )
        self.submissions = Submissions(
            ledger, self.queue, self.waiting, self.operations, self.notices, decisions
        )
        self.running = self._follow()

    def __len__(self) -> int:
        """Return the number of pending jobs."""
        return len(self.waiting)

    def kinds(self) -> Mapping[str, int]:
        """Return the number of pending attempts of GPUJobs, pod groups and standalone pods."""
        gangs = sum(1 for _ in self.waiting.gangs())
        groups = sum(1 for _ in self.waiting.pod_groups())
        return {"gang": gangs, "group": groups, "pod": len(self.waiting) - gangs - groups}

    def starving(self) -> Mapping[Tenant, float]:
        """Return the seconds for which each namespace's oldest job waits within nominal quota."""
        return starving_seconds(self.queue.state, self.ledger.cluster, self.now())

    def cluster(self) -> Cluster:
        """Return the cluster as the ledger knows it now; it must not be changed."""
        return self.ledger.cluster

    def now(self) -> float:
        """Return the queue's time, which never goes back."""
        self._now = max(self._now, self._clock())
        return self._now

    def see(self) -> tuple[Notice, ...]:
        """Apply the changes of ledger and quotas; return the notices."""
        self._see_quotas()
        self.windows.apply(self.queue, self.now())
        seen, now = self.ledger.changes.take(), self.now()
        self._learned.see(seen.jobs)
        for node in sorted(seen.nodes):
            self.queue.record_node_change(node, self.ledger.cluster)
        for node in seen.freed:
            row = self.ledger.cluster.row(node)
            if row is not None:
                self.queue.record_release(row)
        for attempt in self.running.see(seen, now):
            self._see_lost(attempt, now)
        self._restore_usage()
        jobs = sorted(seen.jobs)
        for uid in jobs:
            self.operations.moves.see(uid, now)
        self.submissions.see_jobs(jobs, now)
        for uid in jobs:
            self.operations.preemptions.see_unsubmitted(uid, now)
        for uid in sorted(seen.gates):
            self._see_gate(uid, now)
        self._see_groups(now)
        return self.notices.take()

    def submit(self, ask: GangRequest) -> tuple[Notice, ...]:
        """Add an attempt to the queue, in place of earlier requests of its job.

        Its waiting time counts from `ask.since`, if that is known.

        Raises:
            QueueFull: its namespace has as much in the queue as it may, or pods of this attempt
                still hold GPUs.
        """
        ask = dataclasses.replace(ask, estimate=self._learned.estimate(ask.attempt))
        job = job_id(ask.attempt)
        before = self.waiting.get(job)
        if before is not None and before.is_same_request(ask):
            before.see_version(ask)
            return ()
        if job in self.running:
            raise QueueFull(
                "pods of this very attempt hold GPUs still; it waits until they are gone"
            )
        self.submissions.submit(ask, self.now())
        return self.notices.take()

    def withdraw(self, uid: str) -> tuple[Notice, ...]:
        """Remove all attempts of a GPUJob from the queue; no effect if there are none."""
        self.submissions.withdraw_job(uid)
        return self.notices.take()

    def withdraw_all(self) -> None:
        """Remove all pending jobs: each is submitted again, or shown by the watch."""
        for job in self.waiting:
            self.submissions.withdraw(job)
        self.submissions.forget_groups()
        self.ledger.pods.see_gates()
        self.ledger.jobs.see_all()
        self.notices.take()

    def restart(self) -> None:
        """Rebuild the queue from the ledger's running jobs; pending jobs are submitted again."""
        self.withdraw_all()
        self.queue.clear()
        self.running = self._follow()
        self.operations.clear()
        self.windows.forget()
        self._configured = -1
        self.ledger.claims.see_all()

    def forget_unknown(self) -> tuple[Notice, ...]:
        """Withdraw jobs whose GPUJob the watch does not show: it is gone."""
        self.submissions.forget_unknown(self.now())
        return self.notices.take()

    def obstacle(self, ask: GangRequest) -> str:
        """Return why a request could not enter the queue; empty if it could."""
        return self.waiting.obstacle_to(ask)

    def obstacle_of_pod(self, uid: str) -> str:
        """Return why a pod behind gpupack's gate is not in the queue; empty: no reason is known."""
        of_group = self.submissions.groups.obstacle(uid)
        return of_group.text if of_group else self.waiting.obstacle(uid)

    def obstacle_reason(self, uid: str) -> str:
        """Return the reason of `obstacle_of_pod` for programs."""
        of_group = self.submissions.groups.obstacle(uid)
        return of_group.reason.value if of_group else PodGroupReason.QUEUE_FULL.value

    def pending_id(self, uid: str) -> JobId:
        """Return the ID of the job in which a pod behind gpupack's gate waits, if it does."""
        return self.submissions.pending_id(uid)

    def admitted_gang(self, attempt: AttemptKey) -> Gang | None:
        """Return the request of an attempt that holds places; None if it holds none."""
        running = self.queue.state.running.get(job_id(attempt))
        return running.job.gang if running else None

    def explain(self, job: JobId) -> Wait:
        """Return why a job waits.

        Raises:
            NotHeld: it does not wait.
        """
        return self.queue.explain(job, self.ledger.cluster, self.now(), self.plan)

    def window_reports(self) -> dict[ReservationId, WindowReport]:
        """Return what the current or next window of each reservation has and lacks."""
        reports = self.queue.window_reports(self.ledger.cluster, self.now(), self.plan)
        return {each.window.reservation: each for each in reversed(reports)}

    def copy(self) -> tuple[Queue, Cluster]:
        """Return copies of queue and cluster, for what-if questions in any thread."""
        self.queue.drain(self.draining.movable())
        foreseen = max(self.queue.rules.max_reservations, 1)
        return self.queue.copy(max_reservations=foreseen), self.ledger.cluster.fork()

    def plan(self, cluster: Cluster, job: Job) -> Places | None:
        """Place a job of this queue by its policy."""
        waiting = self.waiting.get(job.id)
        name = waiting.ask.policy if waiting else self._policy_of(job)
        policy = self._policies.named(name)
        vacated = self._vacated(waiting.ask) if waiting else ()
        if vacated:
            there = place_by_policy(policy, cluster, job, candidates=vacated)
            if there is not None:
                return there
        return place_by_policy(policy, cluster, job)

    def planner(self, also: Mapping[JobId, str | None]) -> Planner:
        """Return a planner of pending jobs and of those in `also`, for a copy of the queue.

        `also` has the policies of other jobs. Policies have the present forecast.
        """
        policy_of = {job: self.waiting[job].ask.policy for job in self.waiting} | dict(also)
        by_name = self._policies.all()

        def plan(cluster: Cluster, job: Job) -> Places | None:
            name = policy_of[job.id] if job.id in policy_of else self._policy_of(job)
            return place_by_policy(by_name[name], cluster, job)

        return plan

    def _follow(self) -> RunningHolders:
        """Return the running jobs of an empty queue."""
        return RunningHolders(
            self.ledger,
            self.queue,
            self._learned,
            evicts=self.decisions.queue.preemption.pods,
            observed=self.decisions.observed_resources,
            limit_of=self.quotas.run_limit,
        )

    def _see_quotas(self) -> None:
        if self._configured == self.quotas.changes:
            return
        self._configured = self.quotas.changes
        reading = self.quotas.read(self.decisions.queue.default)
        self.problems = reading.problems
        self.queue.configure(reading.quotas, self.ledger.cluster, self.now())
        self.running.see_run_limits(self.now())
        self.ledger.pods.see_gates()

    def _restore_usage(self) -> None:
        """Recall what tenants used before this process started.

        From then on the queue counts usage by itself: a process that does not decide also sees
        which jobs run.
        """
        if self._recalled:
            return
        self._recalled = True
        statuses = [each.status for each in self.quotas.cohorts.items.values()]
        for kept in averages.read(statuses):
            self.queue.restore_usage(kept.averages, kept.at, self.ledger.cluster, self.now())

    def _see_lost(self, attempt: AttemptKey, now: float) -> None:
        """Restore the state of an attempt whose places were released unwritten.

        The job is in no queue and is submitted again. The reservation in its status is restored
        before other jobs are considered.
        """
        uid = attempt.job_uid
        self.operations.see_job(uid, now)
        shown = self.ledger.jobs.shown(uid)
        if shown is not None and shown.may_wait and shown.attempt.number < attempt.number:
            self.notices.new_answer(attempt)

    def _see_gate(self, uid: str, now: float) -> None:
        let_in = self.submissions.see_gate(uid, now, self.quotas.run_limit)
        if let_in is not None:
            self.admitted_pods.see(let_in)
            self.running.see_pod(uid, now)
        elif uid not in self.ledger.pods.gated:
            self.admitted_pods.gone(uid)

    def _see_groups(self, now: float) -> None:
        groups = self.submissions.groups
        groups.see_changed(self.running.take_changed_groups())
        self.submissions.see_groups(now)

    def _vacated(self, ask: QueueRequest) -> tuple[NodeName, ...]:
        """Return the nodes that a replacement of members of a pod group goes to first."""
        if isinstance(ask, GangRequest) or ask.joins is None:
            return ()
        return self.running.vacated(ask.joins)

    def _policy_of(self, job: Job) -> str | None:
        """Return the policy of a running job that may move; None: the cluster's."""
        uid, _, _ = job.id.partition("/")
        shown = self.ledger.jobs.shown(uid) if job.movable else None
        name = shown.movable.spec.policy if shown and shown.movable else None
        return name if name in POLICIES else None
