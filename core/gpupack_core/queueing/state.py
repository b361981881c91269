# SPDX-License-Identifier: Apache-2.0
"""All that a queue knows between two cycles."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.books import Books
from gpupack_core.queueing.drain import Drains
from gpupack_core.queueing.elastic import Elastic
from gpupack_core.queueing.guests import Guests
from gpupack_core.queueing.job import Job, JobId, Places, Running
from gpupack_core.queueing.room import KeptRoom, Reservation
from gpupack_core.queueing.running import RunningJobs
from gpupack_core.queueing.start_estimate_memo import Estimates
from gpupack_core.queueing.waiting import Failures, Waiting


@dataclass(frozen=True, slots=True)
class Findings:
    """Of cycles that decided nothing."""

    failures: Failures
    kept: tuple[KeptRoom, ...]
    heads: tuple[JobId, ...]
    disruptions: int
    runs: int
    reserved: frozenset[JobId]


@dataclass(slots=True)
class State:
    """Mutable; changed by Queue alone, but for what cycles remember."""

    books: Books
    waiting: Waiting
    running: RunningJobs = field(default_factory=RunningJobs)
    reserved: dict[JobId, Reservation] = field(default_factory=dict)
    """By beneficiary, in the order in which they were decided; who is moved is his own victim."""
    stuck: set[JobId] = field(default_factory=set)
    """Who was to be stopped and has not ended in time."""
    kept: list[KeptRoom] = field(default_factory=list)
    """For those who are first and lack room, the first first; worked out when it was asked for."""
    guests: Guests = field(default_factory=Guests)
    """Who went past those who wait, on a guess."""
    drains: Drains = field(default_factory=dict)
    """What movable jobs are to leave."""
    elastic: Elastic = field(default_factory=Elastic)
    """Which gangs that run may grow."""
    heads: tuple[JobId, ...] = ()
    """All of those, as of the last cycle."""
    foresees_next: bool = False
    """Whether the next cycle works out for whom room is kept, and searches for no victims: the last
    one did the reverse. Both in one would take too long."""
    disruptions: int = 0
    """How often something broke, was repaired or was configured: what was foreseen is void."""
    runs: int = 0
    """How often a job began to run, ended or was withdrawn."""
    estimates: Estimates = field(default_factory=Estimates)
    """When the first of those that wait start."""

    def copy(self) -> "State":
        """The same, independent of this one."""
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
        """What cycles remember, for the state of which this one is a copy."""
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
        """What cycles of a copy found, which a cycle here would have found, too."""
        self.waiting.remember(found.failures)
        counts = self.disruptions, self.runs
        is_same = (found.disruptions, found.runs) == counts
        if is_same and found.reserved == self.reserved.keys():
            self.kept, self.heads = list(found.kept), found.heads

    def stopping(self) -> set[JobId]:
        """Those who run and are to end for another."""
        return {
            job
            for reservation in self.reserved.values()
            for job in reservation.victims
            if job in self.running
        }

    def victims_of(self, reservation: Reservation) -> tuple[Running, ...]:
        """Those who have not ended yet."""
        found = map(self.running.get, reservation.victims)
        return tuple(running for running in found if running is not None)

    def extras_of(self, running: Iterable[Running]) -> list[Running]:
        """The extra workers of these gangs that run."""
        ids = [extra for one in running for extra in sorted(self.elastic.extras_of(one.job.id))]
        return [self.running.extras[extra] for extra in ids]

    def starts(self, running: Running) -> None:
        """It runs from now on; rooms of which it takes are foreseen anew."""
        self.runs += 1
        self.running.add(running)
        job = running.job.id
        taken = {
            room.job.id
            for room in self._standing()
            if not room.starts(running, guest=job in self.guests.of(room.job.id))
        }
        self.kept = [room for room in self.kept if room.job.id not in taken | {job}]

    def exchanges(self, job: Job, places: Places, stopped: Sequence[Running]) -> None:
        """These are stopped for it; rooms of which it takes are foreseen anew."""
        taken = {
            room.job.id for room in self._standing() if not room.exchange(job, places, stopped)
        }
        self.kept = [room for room in self.kept if room.job.id not in taken | {job.id}]

    def leaves(self, running: Running) -> None:
        """It runs no longer."""
        self.runs += 1
        for room in self._standing():
            room.future.leaves(running)

    def withdraws(self, job: JobId) -> None:
        """It waits no longer."""
        self.runs += 1
        for room in self._standing():
            room.future.give_back(job)

    def _standing(self) -> list[KeptRoom]:
        """Rooms that are not void: of those that are, nodes may be others by now."""
        return [room for room in self.kept if room.disruptions == self.disruptions]

    def kept_for(self, job: Job) -> KeptRoom | None:
        """The room that is kept for a job that waits."""
        return next((room for room in self.kept if room.job.id == job.id), None)

    def give_back(self, cluster: Cluster, places: Places) -> None:
        """These places can be had again."""
        for placement in places:
            row = cluster.row(placement.node)
            if row is not None:
                self.waiting.freed(row)

    def recount(self, cluster: Cluster) -> None:
        """Charges under new keys, and what is used in a new tree."""
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
        """What is used in a new tree: by those who run, but not by those who end for another."""
        self.books.rebuild(self.running.used().items())
        for job in self.stopping():
            running = self.running.get(job)
            if running is not None:
                self.books.usage.add(running.job.tenant, running.charge, sign=-1)
        for held in self.reserved.values():
            self.books.usage.add(held.job.tenant, held.charge)
