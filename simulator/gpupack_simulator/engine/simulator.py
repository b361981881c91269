# SPDX-License-Identifier: Apache-2.0
"""The engine: takes the next instant off the agenda, lets it happen, and looks at the result.

    agenda ─► ends, repairs, failures, arrivals of one instant ─► the discipline serves the queue
           ─► a sample, if one is due ─► the next instant

All that happens at one instant happens before anybody is served: who arrives when another ends
sees the free place, and of several who arrive together the discipline decides who is first.
"""

from collections.abc import Iterable
from math import inf
from time import perf_counter

from gpupack_core import Cluster, Node, Policy, policy_named
from gpupack_simulator.engine.books import (
    Books,
    allocated_of,
    capacity_of,
    held_before,
    job_record,
    without_slices,
)
from gpupack_simulator.engine.desk import LiveDesk
from gpupack_simulator.engine.events import Agenda, Ended, Event, Kind, Part
from gpupack_simulator.engine.learning import Learning
from gpupack_simulator.engine.look import Observer
from gpupack_simulator.engine.outages import Outages
from gpupack_simulator.engine.settings import Settings
from gpupack_simulator.errors import InvalidJob
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.queueing import discipline_named
from gpupack_simulator.record import Run, Sample, State

_DEFAULTS = Settings()


class Simulator:
    """One policy, one seed.

    Either step by step, with `now`, `cluster` and `state()` in between, or all at once:

    >>> run = Simulator(nodes, jobs, "fgd", Settings(discipline="backfill")).run()
    """

    def __init__(
        self,
        nodes: Iterable[Node] | Cluster,
        jobs: Iterable[Job],
        policy: str | Policy = "default",
        settings: Settings = _DEFAULTS,
    ) -> None:
        self.settings = settings
        self.cluster = nodes if isinstance(nodes, Cluster) else _cluster(nodes, settings.seed)
        self._jobs = _distinct(jobs)
        self._policy = policy_named(policy) if isinstance(policy, str) else policy
        self._name = policy if isinstance(policy, str) else policy.name
        self._discipline = discipline_named(settings.discipline)
        self._books = Books(settings.measured_from, settings.occupancy)
        self._books.allocated = int(allocated_of(self.cluster).sum())
        if settings.occupancy:
            self._books.occupancy += held_before(self.cluster)
        learning = Learning(self._policy, settings.mix)
        self._desk = LiveDesk(self.cluster, learning, self._discipline, self._books)
        self._outages = Outages({node.name: node for node in self.cluster.nodes()})
        self._look = Observer(
            self.cluster, settings.sampling, capacity_of(self.cluster), self._jobs
        )
        self._wall = 0.0
        self._schedule(self._desk.agenda)

    @property
    def now(self) -> float:
        """The clock, in the run's unit."""
        return self._desk.now

    def step(self) -> bool:
        """All that happens at the next instant; False: nothing more happens."""
        time = self._desk.agenda.next_time
        if time > self.settings.until or time == inf or self._idle():
            return False
        self._pass_time(time)
        agenda = self._desk.agenda
        while (event := agenda.pop_at(time, before=Kind.SAMPLE)) is not None:
            self._happen(event)
        self._desk.serve()
        if agenda.drop_samples(time):
            self._look.take(self._desk, self._books)
            agenda.add(time + self.settings.sampling.every, Kind.SAMPLE)
        else:
            self._look.take_if_due(self._desk, self._books)
        return True

    def run(self, until: float | None = None) -> Run:
        """On to the end, or through all that happens by this time; the record so far."""
        self.advance(inf if until is None else until)
        return self.record()

    def advance(self, until: float) -> None:
        """Through all that happens by this time, which the clock then shows."""
        begun = perf_counter()
        while self._desk.agenda.next_time <= until:
            if not self.step():
                break
        end = min(until, self.settings.until)
        if end < inf:
            self._pass_time(max(end, self.now))
        self._wall += perf_counter() - begun

    @property
    def over(self) -> bool:
        """Whether the end has come, or nothing more can change."""
        return self.now >= self.settings.until or self._idle()

    def state(self) -> State:
        """The run so far, for printing."""
        desk = self._desk
        return State(
            time=self.now,
            time_unit=self.settings.time_unit,
            policy=self._name,
            cluster=self.cluster,
            jobs=tuple(job_record(entry, self.now) for entry in desk.entries),
            expected=self._jobs[len(desk.entries) :],
            sample=self.sample(),
        )

    def sample(self) -> Sample:
        """The cluster now."""
        return self._look.sample(self._desk, self._books)

    def record(self) -> Run:
        """What the run has left behind so far."""
        desk, books, settings = self._desk, self._books, self.settings
        running = (held for entry in desk.running.values() for held in books.held_by(entry, None))
        return Run(
            policy=self._name,
            seed=settings.seed,
            parameters={"discipline": settings.discipline, **settings.parameters},
            time_unit=settings.time_unit,
            nodes=tuple(map(without_slices, self._outages.well.values())),
            jobs=tuple(job_record(entry, self.now) for entry in desk.entries),
            samples=tuple(self._look.samples),
            occupancy=(*books.occupancy, *running),
            losses=tuple(books.losses),
            outages=self._outages.all(),
            measured_from=settings.measured_from,
            allocated_milli_time=books.area,
            ended=self.now,
            events=books.events,
            seconds_of_wall=self._wall,
        )

    def _schedule(self, agenda: Agenda) -> None:
        for job in self._jobs:
            agenda.add(job.arrival, Kind.ARRIVE, job)
        for breakdown in self.settings.breakdowns:
            agenda.add(breakdown.at, Kind.FAIL, breakdown.part)
            agenda.add(breakdown.until, Kind.REPAIR, breakdown.part)
        if self.settings.sampling.every < inf:
            agenda.add(0.0, Kind.SAMPLE)

    def _idle(self) -> bool:
        """What is left on the agenda changes nothing.

        Nobody runs, waits or is to come; or those who run never end, and who waits for them waits
        for ever: samples of that would go on without end.
        """
        desk = self._desk
        arrived = len(desk.entries) == len(self._jobs)
        return desk.agenda.spent or (arrived and not desk.running and not len(desk.waiting))

    def _pass_time(self, time: float) -> None:
        self._books.pass_time(self._desk.now, time)
        self._desk.now = time

    def _happen(self, event: Event) -> None:
        self._books.events += 1
        match event.subject:
            case Job() as job:
                self._desk.arrive(job, keep_waiting=self._discipline.keeps)
            case Ended() as ended:
                self._desk.finish(ended)
            case Part() as part if event.kind is Kind.FAIL:
                self._fail(part)
            case Part() as part:
                self._repair(part)

    def _repair(self, part: Part) -> None:
        self._desk.upsets += 1
        if self._outages.repair(self.cluster, part, self.now):
            self._desk.freed(part.node)

    def _fail(self, part: Part) -> None:
        self._desk.upsets += 1
        if self._outages.fail(self.cluster, part, self.now):
            for entry in self._desk.hit(part):
                self._desk.kill(entry, part.node, requeue=self.settings.requeue)


def _cluster(nodes: Iterable[Node], seed: int) -> Cluster:
    return Cluster(nodes, tie_seed=seed)


def _distinct(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """In the order of arrival; of equals in the order given."""
    ordered = tuple(sorted(jobs, key=lambda job: job.arrival))
    seen: set[JobId] = set()
    for job in ordered:
        if job.id in seen:
            raise InvalidJob(f"two jobs have the id {job.id}")
        seen.add(job.id)
    return ordered
