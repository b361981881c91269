# SPDX-License-Identifier: Apache-2.0
"""A custom queue: an object that decides in the place of the queue.

    waiting and running jobs, the cluster, now ─► JobQueue.decide ─► Decisions: Admit, Preempt

The engine calls it at every instant with an event, and again as long as it decides something, so
one admission at a time is enough. Its decisions are checked before they are executed: a mistake
ends the run with an error that names the job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import gpupack_queue as q
from gpupack_placement import WHOLE_GPU, Cluster, DecisionError, Gang, NodeName, Placement, Request
from gpupack_simulator.errors import InvalidDecision
from gpupack_simulator.job import JobId, holder_name


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a decision, which must not be changed. Times are in the run's unit.

    `plan(cluster, job)`: the placement of the job by the run's policy; None: it does not fit.
    `stopping`: those of `running` that are being preempted.
    """

    waiting: tuple[q.Job, ...]
    """Jobs in the order of their entry into the queue; preempted or killed jobs enter again at the
    end."""
    running: tuple[q.RunningJob, ...]
    stopping: frozenset[JobId]
    cluster: Cluster
    now: float
    plan: q.Planner


class JobQueue(Protocol):
    """The interface of a custom queue.

    `Decisions.look_at`: the time of the next call if no event comes before.
    """

    def decide(self, situation: Situation, /) -> q.Decisions:
        """Return the decisions for now; an empty answer: none."""


class OwnQueue:
    """An adapter of a JobQueue, with the methods of Queue that an engine calls."""

    def __init__(self, deciding: JobQueue) -> None:
        self._deciding = deciding
        self._waiting: dict[JobId, q.Job] = {}
        self._running: dict[JobId, q.RunningJob] = {}
        self._stopping: set[JobId] = set()
        self._stopped: dict[JobId, float] = {}
        """Time of the last stop of each job. No job is stopped twice at one instant, which could go
        on forever."""
        self._keys = q.ModelKeys()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether no job waits."""
        return not self._waiting

    def jobs(self) -> list[q.Job]:
        """Return the waiting jobs."""
        return list(self._waiting.values())

    def gangs(self) -> list[Gang]:
        """Return the distinct gangs of the waiting jobs."""
        return list(dict.fromkeys(job.gang for job in self._waiting.values()))

    def submit(self, job: q.Job, now: float) -> None:
        """Add a job that waits from now on."""
        del now
        self._waiting[job.id] = job

    def withdraw(self, job: JobId, cluster: Cluster) -> None:
        """Remove a waiting job."""
        del cluster
        self._waiting.pop(job, None)

    def start(
        self, job: q.Job, places: tuple[Placement, ...], cluster: Cluster, now: float
    ) -> None:
        """Record that a waiting job runs there from now on."""
        del self._waiting[job.id]
        charge = self._keys.charge(cluster, places)
        self._running[job.id] = q.RunningJob(job, places, now, charge)

    def end(self, job: JobId, cluster: Cluster, now: float) -> None:
        """Record that a job has ended and its places are free."""
        del self._running[job], cluster, now
        self._stopping.discard(job)

    def reserve(self, decision: q.Preempt, cluster: Cluster, now: float) -> None:
        """Record the victims of a preemption; reservations are left to the deciding queue."""
        del cluster
        for victim in decision.victims:
            self._stopping.add(victim.job)
            self._stopped[victim.job] = now

    def release(self, job: JobId, cluster: Cluster, *, stuck: Sequence[JobId] = ()) -> None:
        """Do nothing, since nothing is reserved here."""

    def record_node_change(self, node: NodeName, cluster: Cluster) -> None:
        """Do nothing, since the cluster shows the change."""

    def cycle(self, cluster: Cluster, now: float, plan: q.Planner) -> q.Decisions:
        """Return the queue's decisions after a check.

        Raises:
            InvalidDecision: a decision cannot be executed.
        """
        decided = self._deciding.decide(
            Situation(
                tuple(self._waiting.values()),
                tuple(self._running.values()),
                frozenset(self._stopping),
                cluster,
                now,
                plan,
            )
        )
        if not isinstance(decided, q.Decisions):
            raise InvalidDecision(f"decide answered {decided!r:.60}; give a Decisions")
        self._check(decided, cluster, now)
        done = bool(decided.admitted or decided.preemptions)
        look_at = now if done else decided.due_at
        return q.Decisions(decided.admitted, decided.preemptions, due_at=look_at)

    def _check(self, decided: q.Decisions, cluster: Cluster, now: float) -> None:
        waiting, supposed = dict(self._waiting), cluster.overlay()
        for admit in decided.admitted:
            job = waiting.pop(admit.job, None)
            if job is None:
                raise InvalidDecision(f"job {admit.job} is admitted, but does not wait")
            _take(supposed, job, admit.placements)
        victims: set[JobId] = set()
        for preempt in decided.preemptions:
            if preempt.job not in waiting:
                raise InvalidDecision(f"others are stopped for {preempt.job}, which does not wait")
            if not preempt.victims:
                raise InvalidDecision(
                    f"job {preempt.job} is to preempt, but no victim is named; "
                    "admit it or leave it out"
                )
            for victim in preempt.victims:
                if victim.job in victims or self._stopped.get(victim.job) == now:
                    raise InvalidDecision(f"job {victim.job} is stopped twice at one instant")
                self._check_victim(victim.job)
                victims.add(victim.job)
        done = decided.admitted or decided.preemptions
        if not done and decided.due_at is not None and decided.due_at <= now:
            raise InvalidDecision(
                f"at {now:g} nothing is decided, and it is to be asked again at "
                f"{decided.due_at:g}; give a time to come, or none"
            )

    def _check_victim(self, victim: JobId) -> None:
        running = self._running.get(victim)
        if victim in self._stopping:
            raise InvalidDecision(f"job {victim} is to be stopped, and is being stopped already")
        if running is None:
            raise InvalidDecision(f"job {victim} is to be stopped, but does not run")
        if not running.job.preemptible:
            raise InvalidDecision(f"job {victim} is to be stopped, but is not preemptible")


def _take(supposed: Cluster, job: q.Job, places: Sequence[Placement]) -> None:
    if len(places) != job.gang.workers:
        raise InvalidDecision(
            f"job {job.id} has {job.gang.workers} workers and is admitted to {len(places)} places; "
            "plan(cluster, job) gives one for each"
        )
    try:
        for worker, (role, placement) in enumerate(
            zip(job.gang.role_of_each_worker(), places, strict=True)
        ):
            supposed.take(holder_name(job.id, worker), placement)
            _check_amounts(supposed, job, role.request, placement)
    except DecisionError as error:
        raise InvalidDecision(f"job {job.id} is admitted where it cannot run: {error}") from error


def _check_amounts(cluster: Cluster, job: q.Job, request: Request, place: Placement) -> None:
    """Check that the placement has exactly the requested amounts; it is held in the cluster."""
    remedy = "plan(cluster, job) gives what it requests"
    if len(place.devices) != request.devices:
        asked, given = _counted(request.devices, "GPU"), _counted(len(place.devices), "device")
        raise InvalidDecision(
            f"job {job.id} requests {asked} and is given {given} on {place.node}; {remedy}"
        )
    if place.extended != request.extended:
        raise InvalidDecision(
            f"job {job.id} is given {dict(place.extended)} of {place.node}; it requests "
            f"{dict(request.extended)}"
        )
    if (place.cpu, place.memory) != (request.cpu, request.memory):
        raise InvalidDecision(
            f"job {job.id} is given {place.cpu} mCPU and {place.memory} MiB of memory on "
            f"{place.node}; it requests {request.cpu} and {request.memory}"
        )
    node, share = cluster.node(place.node), request.share
    memory = {} if node is None else {device.uuid: device.memory for device in node.devices}
    for grant in place.devices:
        whole = memory.get(grant.uuid, grant.memory)
        milli, mib = (WHOLE_GPU, whole) if share is None else (share.milli, share.memory)
        if grant.milli != milli:
            found = f"{grant.milli} milli-GPU"
        elif grant.memory != mib:
            found = f"{grant.memory} MiB"
        else:
            continue
        raise InvalidDecision(f"job {job.id} is given {found} of {grant.uuid}; {remedy}")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
