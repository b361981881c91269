# SPDX-License-Identifier: Apache-2.0
"""The state of a queue between two cycles."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.books import Books
from gpupack_core.queueing.drain import Drains
from gpupack_core.queueing.elastic import Elastic
from gpupack_core.queueing.guests import Guests
from gpupack_core.queueing.job import Job, JobId, Places, RunningJob
from gpupack_core.queueing.room import KeptRoom, Reservation
from gpupack_core.queueing.running import RunningJobs
from gpupack_core.queueing.start_estimate_memo import Estimates
from gpupack_core.queueing.waiting import Failures, Waiting


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of cycles that decided nothing."""

    failures: Failures
    kept: tuple[KeptRoom, ...]
    heads: tuple[JobId, ...]
    disruptions: int
    runs: int
    reserved: frozenset[JobId]


@dataclass(slots=True)
class State:
    """The state of a queue; mutable; only Queue changes it, except for what cycles remember."""

    books: Books
    waiting: Waiting
    running: RunningJobs = field(default_factory=RunningJobs)
    reserved: dict[JobId, Reservation] = field(default_factory=dict)
    """The reserved places by preemptor, in the order of the decisions.

    A job that moves is its own victim.
    """
    stuck: set[JobId] = field(default_factory=set)
    """Victims that have not ended in time."""
    kept: list[KeptRoom] = field(default_factory=list)
    """The backfill reservations, in the order of the queue heads; computed when needed."""
    guests: Guests = field(default_factory=Guests)
    """The jobs that were speculatively backfilled before queue heads."""
    drains: Drains = field(default_factory=dict)
    """The devices that movable jobs are to leave."""
    elastic: Elastic = field(default_factory=Elastic)
    """The running gangs that may grow."""
    heads: tuple[JobId, ...] = ()
    """The queue heads of the last cycle, with or without a computed reservation."""
    foresees_next: bool = False
    """Whether the next cycle makes reservations and does not search for victims.

    The last one did the reverse. Both in one cycle would take too long.
    """
    disruptions: int = 0
    """The number of failures, repairs and configurations; each makes reservations void."""
    runs: int = 0
    """The number of jobs that began to run, ended or were withdrawn."""
    estimates: Estimates = field(default_factory=Estimates)
    """The start estimates of the first pending jobs."""

    def copy(self) -> "State":
        """Return an independent copy."""
        return replace(
            self,
            books=self.books.copy(),
            waiting=self.waiting.copy(),
            running=self.running.copy(),
            reserved=self.reserved.copy(),
            stuck=self.stuck.copy(),
            kept=[room.copy() for room in self.kept],
            guests=self.guests.copy(),
            drains=dict(self.drains),
            elastic=self.elastic.copy(),
            estimates=Estimates(),
        )

    def findings(self) -> "Findings":
        """Return what cycles remember, for the state of which this one is a copy."""
        kept = tuple(room.copy() for room in self.kept)
        return Findings(
            self.waiting.failures(),
            kept,
            self.heads,
            self.disruptions,
            self.runs,
            frozenset(self.reserved),
        )

    def remember(self, found: "Findings") -> None:
        """Take over what cycles of a copy found, as a cycle here would have found it, too."""
        self.waiting.remember(found.failures)
        counts = self.disruptions, self.runs
        is_same = (found.disruptions, found.runs) == counts
        if is_same and found.reserved == self.reserved.keys():
            self.kept, self.heads = list(found.kept), found.heads

    def stopping(self) -> set[JobId]:
        """Return the running jobs that are to end for another job."""
        return {
            job
            for reservation in self.reserved.values()
            for job in reservation.victims
            if job in self.running
        }

    def victims_of(self, reservation: Reservation) -> tuple[RunningJob, ...]:
        """Return the victims that have not ended yet."""
        found = map(self.running.get, reservation.victims)
        return tuple(running for running in found if running is not None)

    def extras_of(self, running: Iterable[RunningJob]) -> list[RunningJob]:
        """Return the running extra workers of these gangs."""
        ids = [extra for one in running for extra in sorted(self.elastic.extras_of(one.job.id))]
        return [self.running.extras[extra] for extra in ids]

    def starts(self, running: RunningJob) -> None:
        """Record that a job runs; drop the reservations of which it takes."""
        self.runs += 1
        self.running.add(running)
        job = running.job.id
        taken = {
            room.job.id
            for room in self._standing()
            if not room.starts(running, guest=job in self.guests.of(room.job.id))
        }
        self.kept = [room for room in self.kept if room.job.id not in taken | {job}]

    def exchanges(self, job: Job, places: Places, stopped: Sequence[RunningJob]) -> None:
        """Record a preemption; drop the reservations of which the preemptor takes."""
        taken = {
            room.job.id for room in self._standing() if not room.exchange(job, places, stopped)
        }
        self.kept = [room for room in self.kept if room.job.id not in taken | {job.id}]

    def leaves(self, running: RunningJob) -> None:
        """Record that a job no longer runs."""
        self.runs += 1
        for room in self._standing():
            room.future.leaves(running)

    def withdraws(self, job: JobId) -> None:
        """Record that a job no longer waits."""
        self.runs += 1
        for room in self._standing():
            room.future.give_back(job)

    def _standing(self) -> list[KeptRoom]:
        """Return the reservations that are not void; the nodes of the others may have changed."""
        return [room for room in self.kept if room.disruptions == self.disruptions]

    def kept_for(self, job: Job) -> KeptRoom | None:
        """Return the job's backfill reservation; None: it has none."""
        return next((room for room in self.kept if room.job.id == job.id), None)

    def give_back(self, cluster: Cluster, places: Places) -> None:
        """Record that these places are free again."""
        for placement in places:
            row = cluster.row(placement.node)
            if row is not None:
                self.waiting.freed(row)

    def recount(self, cluster: Cluster) -> None:
        """Count charges again under new keys, and usage in a new tree."""
        for running in tuple(self.running):
            charge = self.books.charge(cluster, running.placements)
            if charge != running.charge:
                self.running.remove(running.job.id)
                self.running.add(replace(running, charge=charge))
        for job, held in self.reserved.items():
            charge = self.books.charge(cluster, held.placements)
            self.reserved[job] = replace(held, charge=charge)
        self.rebuild()

    def rebuild(self) -> None:
        """Count usage in a new tree: that of running jobs without victims, and of preemptors."""
        self.books.rebuild(self.running.used().items())
        for job in self.stopping():
            running = self.running.get(job)
            if running is not None:
                self.books.usage.add(running.job.tenant, running.charge, sign=-1)
        for held in self.reserved.values():
            self.books.usage.add(held.job.tenant, held.charge)
