# SPDX-License-Identifier: Apache-2.0
"""Execution of the queue's decisions: the cluster's holdings and the progress of jobs."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import Final

import gpupack_queue as q
from gpupack_placement import (
    WHOLE_GPU,
    Cluster,
    Gang,
    NodeName,
    Placement,
    Policy,
    Request,
    Spread,
    why_not,
)
from gpupack_queue.quotas.tree import Tree
from gpupack_simulator.disciplines import Discipline, KnownDurations, discipline_named
from gpupack_simulator.engine.checkpoints import ReportedCheckpoints
from gpupack_simulator.engine.events import (
    Cancelled,
    Component,
    Ended,
    EventKind,
    EventQueue,
    Stop,
)
from gpupack_simulator.engine.job_state import JobState
from gpupack_simulator.engine.learning import Learning
from gpupack_simulator.engine.own_queue import JobQueue, OwnQueue
from gpupack_simulator.engine.progress import Progress
from gpupack_simulator.engine.recorder import Recorder
from gpupack_simulator.engine.settings import Settings
from gpupack_simulator.job import Job, JobId, holder_name, job_of
from gpupack_simulator.record import Cause, Consolidation, End

_LATE_ADMISSION: Final = 1e-6
"""Tolerance by which a scheduled end may precede the computed one."""


class JobDispatcher:
    """The owner of the queue; belongs to one engine."""

    def __init__(
        self,
        cluster: Cluster,
        learning: Learning,
        recorder: Recorder,
        settings: Settings,
    ) -> None:
        queue = settings.queue
        discipline = discipline_named(settings.discipline) if queue is None else queue
        self.cluster = cluster
        self.queue = _queue(discipline, settings.quotas)
        if isinstance(self.queue, q.Queue):
            self.queue.set_windows(settings.windows)
        self.events = EventQueue()
        self.now = 0.0
        self.entries: list[JobState] = []
        self.running: dict[JobId, JobState] = {}
        self._by_id: dict[JobId, JobState] = {}
        self._keeps = discipline.keeps if isinstance(discipline, Discipline) else True
        self._asks = _Requests(cluster, learning if self._keeps else None)
        self._known = (
            discipline.durations if isinstance(discipline, Discipline) else KnownDurations.EXACT
        )
        self._durations = q.DurationEstimates()
        self._learning, self._recorder = learning, recorder
        self._grace, self._speeds = settings.grace, settings.speeds
        self._quotas = Tree(settings.quotas or q.Quotas(), {})
        self._look_at: float | None = None
        self._extras: dict[JobId, JobState] = {}
        """The entry of each extra worker of running elastic jobs."""
        self._since: dict[JobId, float] = {}
        self._checkpoints = ReportedCheckpoints()

    def arrive(self, job: Job) -> None:
        """Submit the job to the queue, unless it would wait forever."""
        gang, never = self._asks.of(job)
        asked = q.Job(
            id=job.id,
            gang=gang,
            submitted=job.arrival,
            tenant=q.Tenant(job.tenant),
            priority=job.priority,
            duration=self._within_limit(job, self._duration(job)),
            number=len(self.entries),
            preemptible=job.preemptible,
            estimate=self._estimate(job),
            extra_workers=job.workers - job.least,
            movable=job.movable,
            grace_seconds=self._grace,
            user=q.User(job.user),
            model_fallback_seconds=job.model_fallback,
            reservation=_reservation(job),
        )
        entry = self._by_id[job.id] = JobState(job, asked, waiting_since=self.now)
        self.entries.append(entry)
        self._recorder.arrived += job.milli
        self._learning.arrived(job)
        if never:
            entry.reason, entry.end, entry.ended = never, End.DROPPED, self.now
        else:
            self.queue.submit(asked, self.now)

    def expect_nodes(self, whole: Cluster) -> None:
        """Use these future nodes: a job that fits on them waits instead of being refused."""
        self._asks = _Requests(whole, self._learning if self._keeps else None)

    def has_arrived(self, job: JobId) -> bool:
        """Tell whether the job has arrived."""
        return job in self._by_id

    def run_queue(self) -> None:
        """Execute the queue's decisions until it makes no more at this instant."""
        if self.queue.idle:
            return
        if isinstance(self.queue, q.Queue):
            for job, at in self._checkpoints.until(self.now):
                self.queue.record_checkpoint(job, at)
        while True:
            decisions = self.queue.cycle(self.cluster, self.now, self._plan)
            again = self._carry_out(decisions)
            look_at = decisions.due_at
            if not again and (look_at is None or look_at > self.now):
                break
        if not self._keeps:
            for asked in self.queue.jobs():
                self._drop(self._by_id[asked.id])
        elif look_at is not None and look_at != self._look_at:
            self._look_at = look_at
            self.events.add(look_at, EventKind.RECHECK)

    def _carry_out(self, decisions: q.Decisions) -> bool:
        """Execute decisions; tell whether they free something."""
        for admit in decisions.admitted:
            self._admit(admit)
        for preempt in decisions.preemptions:
            self._preempt(preempt)
        for reserved in decisions.for_windows:
            self._preempt_for_window(reserved)
        for consolidation in decisions.consolidations:
            self._consolidate(consolidation)
        for move in decisions.moves:
            self._reserve_for_move(move)
            self._leave(move.job)
        for given_up in decisions.cancelled:
            self.queue.release(given_up.job, self.cluster, stuck=given_up.stuck)
        stopped = decisions.preemptions or decisions.moves or decisions.consolidations
        return bool(stopped or decisions.for_windows or decisions.cancelled)

    def _admit(self, admit: q.Admit) -> None:
        entry = self._by_id.get(admit.job)
        if entry is None:
            self._add_worker(admit.job, admit.placements)
        else:
            self._start(entry, admit.placements)

    @property
    def speculative_delays(self) -> tuple[float, ...]:
        """Delays of jobs that waited for speculative backfill."""
        return (
            ()
            if isinstance(self.queue, OwnQueue)
            else tuple(self.queue.state.speculative.delays_seconds)
        )

    def waiting_requests(self) -> list[Request]:
        """Return one request of each kind that waits."""
        return list(dict.fromkeys(each for gang in self.queue.gangs() for each in gang.requests))

    def finish(self, ended: Ended) -> None:
        """End the job, unless that attempt was killed: successfully, or at its maximum run time."""
        entry = self.running.get(ended.job)
        if entry is None or entry.attempts != ended.attempt:
            return
        if ended.is_timeout:
            self._learn(entry, ended=False)
            self._release(entry)
            self._end_unfinished(entry)
        elif entry.course is None or entry.course.ends <= self.now + _LATE_ADMISSION:
            self._learn(entry, ended=True)
            self._release(entry)
            entry.end, entry.ended = End.SUCCEEDED, self.now
            self._learning.departed(entry.job)

    def stop(self, stop: Stop) -> None:
        """Stop the attempt, since its grace period is over."""
        entry = self._extras.get(stop.job)
        if entry is not None and entry.attempts == stop.attempt:
            self._remove_worker(stop.job)
        entry = self.running.get(stop.job)
        if entry is not None and entry.attempts == stop.attempt:
            self._stop(entry, stop.cause)

    def cancel(self, cancelled: Cancelled) -> None:
        """Cancel a queued or running job; a job that has ended stays unchanged."""
        entry = self._by_id[cancelled.job]
        if entry.end is End.RUNNING:
            self._release(entry)
        elif entry.end is End.WAITING:
            self.queue.withdraw(entry.job.id, self.cluster)
            entry.total_wait += self.now - entry.waiting_since
        else:
            return
        entry.end, entry.ended = End.CANCELLED, self.now
        self._learning.departed(entry.job)

    def _end_unfinished(self, entry: JobState) -> None:
        entry.end, entry.ended = End.TIMED_OUT, self.now
        self._learning.departed(entry.job)

    def fail_component(self, component: Component) -> list[JobState]:
        """Return the jobs on this node or device, by arrival, and end extra workers there."""
        if component.device is None:
            holders = self.cluster.holders_on(component.node)
        else:
            holders = self.cluster.holders_of(node=component.node, uuid=component.device)
        jobs = dict.fromkeys(job_of(holder) for holder in holders)
        for extra in [job for job in jobs if job in self._extras]:
            if self._extras[extra].job.id not in jobs:
                self._remove_worker(extra)
        return [self.running[job] for job in jobs if job in self.running]

    def kill(self, entry: JobState, node: NodeName, *, requeue: bool) -> None:
        """Kill the job, which lost a place on this node; its unsaved work is lost."""
        self._recorder.lose(entry, self.now, node, Cause.KILLED_WORK)
        self._release(entry)
        if requeue:
            self._requeue(entry)
        else:
            entry.end, entry.ended = End.KILLED, self.now
            self._learning.departed(entry.job)

    def drain(self, drains: q.Drains) -> None:
        """Ask movable jobs to leave exactly these devices."""
        if isinstance(self.queue, q.Queue):
            self.queue.drain(drains)

    def stop_for_maintenance(self, component: Component) -> None:
        """Stop the jobs on this component; they wait again."""
        for entry in self.fail_component(component):
            self._request_stop(entry, Cause.DRAINED)

    def record_node_change(self, name: NodeName) -> None:
        """Report to the queue that the node failed or was repaired."""
        self.queue.record_node_change(name, self.cluster)

    def _plan(self, cluster: Cluster, job: q.Job) -> tuple[Placement, ...] | None:
        return q.place_by_policy(self._learning.policy, cluster, job)

    def _start(self, entry: JobState, placements: tuple[Placement, ...]) -> None:
        job = entry.job
        for worker, placement in enumerate(placements):
            self.cluster.take(holder_name(job.id, worker), placement)
        self.queue.start(entry.queued_job, placements, self.cluster, self.now)
        self.running[job.id] = entry
        entry.total_wait += self.now - entry.waiting_since
        entry.started, entry.placements, entry.end = self.now, placements, End.RUNNING
        entry.pace = self._pace(placements)
        lasts = entry.attempt_duration(entry.pace)
        entry.attempts += 1
        self._recorder.allocated += job.request.milli * job.least
        is_elastic = job.least < job.workers
        entry.course = Progress(job, self.now, entry.pace) if is_elastic else None
        ends = self.now + lasts if entry.course is None else entry.course.ends
        self.events.add(ends, EventKind.END, Ended(job.id, entry.attempts))
        left = self._max_runtime(job) - entry.active
        self.events.add(
            self.now + left, EventKind.CANCEL, Ended(job.id, entry.attempts, is_timeout=True)
        )
        self._checkpoints.start(entry, self.now)

    def _pace(self, placements: tuple[Placement, ...]) -> float:
        if not self._speeds:
            return 1.0
        grants = (grant.uuid for each in placements for grant in each.devices)
        return min((self._speeds.get(uuid, 1.0) for uuid in grants), default=1.0)

    def _add_worker(self, extra: JobId, placements: tuple[Placement, ...]) -> None:
        gang, _, number = extra.rpartition("+")
        entry = self._by_id[JobId(gang)]
        for worker, placement in enumerate(placements):
            self.cluster.take(holder_name(extra, worker), placement)
        asked = q.extra_worker(entry.queued_job, int(number))
        self.queue.start(asked, placements, self.cluster, self.now)
        entry.extra_workers[extra] = placements
        self._extras[extra], self._since[extra] = entry, self.now
        self._recorder.allocated += entry.job.request.milli
        if entry.course is not None:
            entry.course.resize(1, self.now)
            self._schedule_end(entry, entry.course)

    def _remove_worker(self, extra: JobId) -> None:
        """End an extra worker; its gang continues."""
        entry = self._extras[extra]
        self._end_extra(extra)
        if entry.course is not None:
            entry.course.resize(-1, self.now)
            self._schedule_end(entry, entry.course)

    def _end_extra(self, extra: JobId) -> None:
        entry, since = self._extras.pop(extra), self._since.pop(extra)
        placements = entry.extra_workers.pop(extra)
        self._recorder.vacate_extra(entry.job.id, placements, since, self.now)
        for worker in range(len(placements)):
            self.cluster.give_back(holder_name(extra, worker))
        self.queue.end(extra, self.cluster, self.now)
        self._recorder.allocated -= entry.job.request.milli

    def _schedule_end(self, entry: JobState, course: Progress) -> None:
        """Schedule the new end; earlier scheduled ends are ignored when they come."""
        self.events.add(course.ends, EventKind.END, Ended(entry.job.id, entry.attempts))

    def _preempt(self, decision: q.Preempt) -> None:
        self.queue.reserve(decision, self.cluster, self.now)
        self._stop_victims(decision.victims)

    def _preempt_for_window(self, decision: q.PreemptForWindow) -> None:
        if isinstance(self.queue, q.Queue):
            self.queue.reserve_for_window(decision, self.now)
            self._stop_victims(decision.victims)

    def _stop_victims(self, victims: Iterable[q.Victim]) -> None:
        for victim in victims:
            extra = self._extras.get(victim.job)
            if extra is not None and not self._grace:
                self._remove_worker(victim.job)
            if extra is not None and self._grace:
                stop = Stop(victim.job, extra.attempts)
                self.events.add(self.now + self._grace, EventKind.STOP, stop)
            entry = self.running.get(victim.job)
            if entry is not None:
                self._request_stop(entry, Cause.PREEMPTED)

    def _consolidate(self, decision: q.Consolidate) -> None:
        """Execute a consolidation; no job leaves before the queue knows all moves."""
        self.queue.reserve(decision.preempt, self.cluster, self.now)
        for move in decision.moves:
            self._reserve_for_move(move)
        for move in decision.moves:
            self._leave(move.job)
        self._recorder.consolidations.append(
            Consolidation(
                self.now,
                decision.preempt.job,
                len(decision.moves),
                decision.lost_gpu_seconds * WHOLE_GPU,
                decision.gained_gpu_seconds * WHOLE_GPU,
            )
        )

    def _reserve_for_move(self, move: q.Move) -> None:
        entry = self.running[move.job]
        if isinstance(self.queue, q.Queue):
            self.queue.reserve_for_move(entry.queued_job, move.placements, self.cluster, self.now)

    def _leave(self, job: JobId) -> None:
        self._request_stop(self.running[job], Cause.MOVED)

    def _request_stop(self, entry: JobState, cause: Cause) -> None:
        if self._grace:
            stop = Stop(entry.job.id, entry.attempts, cause)
            self.events.add(self.now + self._grace, EventKind.STOP, stop)
        else:
            self._stop(entry, cause)

    def _stop(self, entry: JobState, cause: Cause) -> None:
        self._recorder.lose(entry, self.now, entry.placements[0].node, cause)
        entry.preemptions += cause is Cause.PREEMPTED
        entry.moves += cause is Cause.MOVED
        self._learn(entry, ended=False)
        self._release(entry)
        self._requeue(entry)

    def _requeue(self, entry: JobState) -> None:
        """Queue a stopped job again, unless its maximum run time is used up."""
        if entry.active >= self._max_runtime(entry.job):
            self._end_unfinished(entry)
            return
        entry.end, entry.waiting_since = End.WAITING, self.now
        lasts = entry.queued_job.duration
        if lasts is not None and (entry.saved or entry.job.restart):
            beyond = max((entry.job.walltime or 0.0) - entry.job.duration, 0.0)
            lasts = entry.remaining + (beyond if self._known is KnownDurations.WALLTIME else 0.0)
        lasts = self._within_limit(entry.job, lasts, active=entry.active)
        entry.queued_job = replace(
            entry.queued_job, estimate=self._estimate(entry.job), duration=lasts
        )
        self.queue.submit(entry.queued_job, self.now)

    def _duration(self, job: Job) -> float | None:
        """Return the duration that the queue knows; for an elastic job with the fewest workers."""
        if self._known is KnownDurations.WALLTIME:
            return None if job.walltime is None else max(job.walltime, job.duration)
        if self._known is not KnownDurations.EXACT:
            return None
        return job.duration * (1 + job.efficiency * (job.workers - job.least) / job.least)

    def _max_runtime(self, job: Job) -> float:
        """Return the maximum run time of the job's cohort, over all attempts."""
        limit = self._quotas.tenant(q.Tenant(job.tenant)).max_runtime_seconds
        return inf if limit is None else limit

    def _within_limit(
        self, job: Job, duration: float | None, *, active: float = 0.0
    ) -> float | None:
        """Return the duration that the queue knows, within what is left of the maximum run time."""
        left = self._max_runtime(job) - active
        if left == inf:
            return duration
        return left if duration is None else min(duration, left)

    def _estimate(self, job: Job) -> float | None:
        if self._known is not KnownDurations.LEARNED:
            return None
        return self._durations.estimate(q.Tenant(job.tenant), _kind(job))

    def _learn(self, entry: JobState, *, ended: bool) -> None:
        if self._known is KnownDurations.LEARNED and entry.started is not None:
            tenant, took = q.Tenant(entry.job.tenant), self.now - entry.started
            self._durations.learn(tenant, _kind(entry.job), took, completed=ended)

    def _drop(self, entry: JobState) -> None:
        self.queue.withdraw(entry.job.id, self.cluster)
        entry.end, entry.ended = End.DROPPED, self.now

    def _release(self, entry: JobState) -> None:
        if entry.course is not None:
            entry.course.pass_time(self.now)
        for extra in tuple(entry.extra_workers):
            self._end_extra(extra)
        del self.running[entry.job.id]
        entry.active += self.now - (self.now if entry.started is None else entry.started)
        self._recorder.vacate(entry, self.now)
        self._recorder.allocated -= entry.job.request.milli * entry.job.least
        for worker in range(len(entry.placements)):
            self.cluster.give_back(holder_name(entry.job.id, worker))
        self.queue.end(entry.job.id, self.cluster, self.now)


def _reservation(job: Job) -> q.ReservationId | None:
    return q.ReservationId(f"{job.tenant}/{job.reservation}") if job.reservation else None


def _kind(job: Job) -> str:
    return job.kind or q.common_name(job.id)


def _queue(discipline: Discipline | JobQueue, quotas: q.Quotas | None) -> q.Queue | OwnQueue:
    if isinstance(discipline, Discipline):
        return q.Queue(discipline.rules, q.Quotas() if quotas is None else quotas)
    return OwnQueue(discipline)


class _Requests:
    """The gangs of jobs, each with the reason if it does not fit on the empty cluster.

    Each is computed once: traces repeat a few requests. A look-up by identity is faster than a
    comparison.
    """

    def __init__(self, cluster: Cluster, learning: Learning | None) -> None:
        """Create the table; `learning` None: a job that can never fit is refused like any other."""
        self._cluster, self._learning = cluster, learning
        self._known: dict[tuple[int, int, Spread], tuple[Gang, str]] = {}
        self._kept: list[Request] = []
        """Requests that are kept alive, since an identity is valid only as long as its object
        exists."""

    def of(self, job: Job) -> tuple[Gang, str]:
        seen = (id(job.request), job.least, job.spread)
        known = self._known.get(seen)
        if known is None:
            self._kept.append(job.request)
            gang, never = job.gang, ""
            if self._learning is not None:
                never = never_fits(self._cluster, gang, self._learning.policy)
            known = self._known[seen] = gang, never
        return known


def never_fits(cluster: Cluster, gang: Gang, policy: Policy) -> str:
    """Return why the gang does not fit on the empty cluster; empty: it fits."""
    refusal = why_not(cluster.emptied(), gang, policy)
    return refusal.message if refusal else ""
