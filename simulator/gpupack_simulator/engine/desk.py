# SPDX-License-Identifier: Apache-2.0
"""Starts and ends jobs: the cluster's books, the queue and who runs, always changed together."""

from collections.abc import Iterable

from gpupack_core import Cluster, NodeName, Placement
from gpupack_simulator.engine.books import Books
from gpupack_simulator.engine.events import Agenda, Ended, Kind, Part
from gpupack_simulator.engine.learning import Learning
from gpupack_simulator.engine.placing import never_fits, place
from gpupack_simulator.job import Job, JobId, holder_of, job_of
from gpupack_simulator.queueing.discipline import Discipline, Lease
from gpupack_simulator.queueing.waiting import Entry, Waiting
from gpupack_simulator.record import End


class LiveDesk:
    """The Desk that a discipline serves; belongs to one engine."""

    def __init__(
        self, cluster: Cluster, learning: Learning, discipline: Discipline, books: Books
    ) -> None:
        self.cluster = cluster
        self.waiting = Waiting(cluster)
        self.agenda = Agenda()
        self.now = 0.0
        self.upsets = 0
        self.entries: list[Entry] = []
        self.running: dict[JobId, Entry] = {}
        self._learning, self._discipline, self._books = learning, discipline, books

    def arrive(self, job: Job, *, keep_waiting: bool) -> None:
        """It joins the queue, unless it would wait for ever."""
        lane, new = self.waiting.lane_of(job)
        if new and keep_waiting:
            lane.never = never_fits(self.cluster, lane.gang, self._learning.policy)
        rank = self._discipline.rank(job, len(self.entries))
        entry = Entry(job, rank, lane, since=self.now)
        self.entries.append(entry)
        self._books.arrived += job.milli
        self._learning.arrived(job)
        self.waiting.add(entry)
        if lane.never:
            entry.reason = lane.never
            self.drop(entry)

    def serve(self) -> None:
        """Let the discipline start whoever may start."""
        if len(self.waiting):
            self._discipline.serve(self)

    def plan(self, entry: Entry, cluster: Cluster | None = None) -> tuple[Placement, ...] | None:
        """As Desk says."""
        there = self.cluster if cluster is None else cluster
        placements = place(there, entry.lane.gang, self._learning.policy)
        if placements is None and cluster is None:
            self.waiting.failed(entry.lane)
        return placements

    def start(self, entry: Entry, placements: tuple[Placement, ...]) -> None:
        """As Desk says."""
        job = entry.job
        for worker, placement in enumerate(placements):
            self.cluster.take(holder_of(job.id, worker), placement)
        self.waiting.remove(entry)
        self.running[job.id] = entry
        entry.waited += self.now - entry.since
        entry.started, entry.placements, entry.end = self.now, placements, End.RUNNING
        entry.attempts += 1
        self._books.allocated += job.milli
        self.agenda.add(self.now + job.duration, Kind.END, Ended(job.id, entry.attempts))

    def drop(self, entry: Entry) -> None:
        """As Desk says."""
        self.waiting.remove(entry)
        entry.end, entry.ended = End.DROPPED, self.now

    def leases(self) -> Iterable[Lease]:
        """As Desk says."""
        for entry in self.running.values():
            started = self.now if entry.started is None else entry.started
            yield Lease(entry.job, entry.placements, started + entry.job.duration)

    def finish(self, ended: Ended) -> None:
        """It is through, unless that attempt was killed."""
        entry = self.running.get(ended.job)
        if entry is not None and entry.attempts == ended.attempt:
            self._release(entry)
            entry.end, entry.ended = End.SUCCEEDED, self.now
            self._learning.departed(entry.job)

    def hit(self, part: Part) -> list[Entry]:
        """Who runs on this node or device, by arrival."""
        if part.device is None:
            holders = self.cluster.holders_on(part.node)
        else:
            holders = self.cluster.holders_of(node=part.node, uuid=part.device)
        jobs = dict.fromkeys(job_of(holder) for holder in holders)
        return [self.running[job] for job in jobs if job in self.running]

    def kill(self, entry: Entry, node: NodeName, *, requeue: bool) -> None:
        """It lost a place on this node: what it has done is lost."""
        self._books.lose(entry, self.now, node)
        self._release(entry)
        if requeue:
            entry.end, entry.since = End.WAITING, self.now
            self.waiting.add(entry)
        else:
            entry.end, entry.ended = End.KILLED, self.now
            self._learning.departed(entry.job)

    def _release(self, entry: Entry) -> None:
        del self.running[entry.job.id]
        self._books.vacate(entry, self.now)
        self._books.allocated -= entry.job.milli
        for worker, placement in enumerate(entry.placements):
            self.cluster.give_back(holder_of(entry.job.id, worker))
            self.freed(placement.node)

    def freed(self, name: NodeName) -> None:
        """Something there may be had again."""
        row = self.cluster.row(name)
        if row is not None:
            self.waiting.freed(row)
