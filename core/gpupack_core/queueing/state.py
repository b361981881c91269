# SPDX-License-Identifier: Apache-2.0
"""All that a queue knows between two cycles."""

from dataclasses import dataclass, field

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.books import Books
from gpupack_core.queueing.job import Job, JobId, Places, Running
from gpupack_core.queueing.room import KeptRoom, Reservation
from gpupack_core.queueing.running import RunningJobs
from gpupack_core.queueing.waiting import Waiting


@dataclass(slots=True)
class State:
    """Mutable; changed by Queue alone, but for what cycles remember."""

    books: Books
    waiting: Waiting
    running: RunningJobs = field(default_factory=RunningJobs)
    reserved: dict[JobId, Reservation] = field(default_factory=dict)
    """By beneficiary, in the order in which they were decided."""
    stuck: set[JobId] = field(default_factory=set)
    """Who was to be stopped and has not ended in time."""
    kept: list[KeptRoom] = field(default_factory=list)
    """For those who are first and lack room, the first first."""
    disruptions: int = 0
    """How often something broke, was repaired or was configured: what was foreseen is void."""

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

    def kept_for(self, job: Job) -> KeptRoom | None:
        """The room that is kept for a job that waits."""
        return next((room for room in self.kept if room.job.id == job.id), None)

    def give_back(self, cluster: Cluster, places: Places) -> None:
        """These places can be had again."""
        for placement in places:
            row = cluster.row(placement.node)
            if row is not None:
                self.waiting.freed(row)
