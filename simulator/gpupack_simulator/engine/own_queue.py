# SPDX-License-Identifier: Apache-2.0
"""A queue of one's own: an object that decides in the place of core's queue.

    who waits, who runs, the cluster, now ─► JobQueue.decide ─► Decisions: Admit, Preempt

It is asked at every instant at which something happened, and again as long as it decides
something, so that one admission at a time is enough. What it decides is checked before it is done:
a mistake in it ends the run with an error that names the job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpupack_core import WHOLE_GPU, Cluster, CoreError, Gang, NodeName, Placement
from gpupack_core import queueing as q
from gpupack_simulator.errors import InvalidDecision
from gpupack_simulator.job import JobId, holder_of


@dataclass(frozen=True, slots=True)
class Situation:
    """What there is to decide on; nothing of it is to be changed. Times are in the run's unit.

    `plan(cluster, job)`: where the run's policy would put the job; None: it does not fit.
    `stopping`: those of `running` who have been told to end for another.
    """

    waiting: tuple[q.Job, ...]
    """In the order in which they came; who was stopped or killed stands behind."""
    running: tuple[q.Running, ...]
    stopping: frozenset[JobId]
    cluster: Cluster
    now: float
    plan: q.Planner


class JobQueue(Protocol):
    """Who goes next. `Decisions.look_at`: when to be asked again if nothing happens before."""

    def decide(self, situation: Situation, /) -> q.Decisions:
        """What is to be done now; an empty answer: nothing."""


class OwnQueue:
    """Keeps the books of a JobQueue, with the methods of core's Queue that an engine calls."""

    def __init__(self, deciding: JobQueue) -> None:
        self._deciding = deciding
        self._waiting: dict[JobId, q.Job] = {}
        self._running: dict[JobId, q.Running] = {}
        self._stopping: set[JobId] = set()
        self._stopped: dict[JobId, float] = {}
        """When last, so that nobody is stopped twice at one instant: that would go on for ever."""
        self._keys = q.Keys()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Nobody waits."""
        return not self._waiting

    def jobs(self) -> list[q.Job]:
        """Those who wait."""
        return list(self._waiting.values())

    def gangs(self) -> list[Gang]:
        """What is waited for."""
        return list(dict.fromkeys(job.gang for job in self._waiting.values()))

    def submit(self, job: q.Job, now: float) -> None:
        """It waits from now on."""
        del now
        self._waiting[job.id] = job

    def withdraw(self, job: JobId, cluster: Cluster) -> None:
        """It waits no longer."""
        del cluster
        self._waiting.pop(job, None)

    def start(
        self, job: q.Job, places: tuple[Placement, ...], cluster: Cluster, now: float
    ) -> None:
        """It runs there since now."""
        del self._waiting[job.id]
        charge = self._keys.charge(cluster, places)
        self._running[job.id] = q.Running(job, places, now, charge)

    def end(self, job: JobId, cluster: Cluster, now: float) -> None:
        """Its places can be had again."""
        del self._running[job], cluster, now
        self._stopping.discard(job)

    def reserve(self, decision: q.Preempt, cluster: Cluster, now: float) -> None:
        """Victims were told to end; whom the room is for is the deciding queue's own business."""
        del cluster
        for victim in decision.victims:
            self._stopping.add(victim.job)
            self._stopped[victim.job] = now

    def release(self, job: JobId, cluster: Cluster, *, stuck: Sequence[JobId] = ()) -> None:
        """Nothing is reserved here."""

    def changed(self, node: NodeName, cluster: Cluster) -> None:
        """The cluster tells."""

    def cycle(self, cluster: Cluster, now: float, plan: q.Planner) -> q.Decisions:
        """What is decided, if it can be done.

        Raises:
            InvalidDecision: it cannot.
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
        look_at = now if done else decided.look_at
        return q.Decisions(decided.admitted, decided.preemptions, look_at=look_at)

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
                raise InvalidDecision(f"nobody is stopped for {preempt.job}; admit it or let it be")
            for victim in preempt.victims:
                if victim.job in victims or self._stopped.get(victim.job) == now:
                    raise InvalidDecision(f"job {victim.job} is stopped twice at one instant")
                self._check_victim(victim.job)
                victims.add(victim.job)
        done = decided.admitted or decided.preemptions
        if not done and decided.look_at is not None and decided.look_at <= now:
            raise InvalidDecision(
                f"at {now:g} nothing is decided, and it is to be asked again at "
                f"{decided.look_at:g}; give a time to come, or none"
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
        for worker, placement in enumerate(places):
            supposed.take(holder_of(job.id, worker), placement)
            _check_amounts(supposed, job, placement)
    except CoreError as error:
        raise InvalidDecision(f"job {job.id} is admitted where it cannot run: {error}") from error


def _check_amounts(cluster: Cluster, job: q.Job, place: Placement) -> None:
    """That it is given what it asks for, no less and no more; the place is held."""
    request, remedy = job.gang.request, "plan(cluster, job) gives what it asks for"
    if len(place.devices) != request.devices:
        asked, given = _counted(request.devices, "GPU"), _counted(len(place.devices), "device")
        raise InvalidDecision(
            f"job {job.id} asks for {asked} and is given {given} on {place.node}; {remedy}"
        )
    if place.extended != request.extended:
        raise InvalidDecision(
            f"job {job.id} is given {dict(place.extended)} of {place.node}; it asks for "
            f"{dict(request.extended)}"
        )
    if (place.cpu, place.memory) != (request.cpu, request.memory):
        raise InvalidDecision(
            f"job {job.id} is given {place.cpu} mCPU and {place.memory} MiB of memory on "
            f"{place.node}; it asks for {request.cpu} and {request.memory}"
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
