# SPDX-License-Identifier: Apache-2.0
"""The engine: it takes the next instant off the event queue, executes it, and samples the result.

    events ─► ends, repairs, failures, arrivals of one instant ─► the discipline serves the queue
           ─► a sample, if one is due ─► the next instant

All events of one instant are executed before the queue is served: a job that arrives when another
ends finds the free place, and among several that arrive together the discipline decides the order.
"""

from collections.abc import Iterable
from math import inf
from time import perf_counter

from gpupack_placement import Cluster, Node, NodeName, Policy, policy_named
from gpupack_simulator.engine.dispatcher import JobDispatcher
from gpupack_simulator.engine.events import (
    Cancelled,
    Component,
    Ended,
    Event,
    EventKind,
    EventQueue,
    Stop,
)
from gpupack_simulator.engine.learning import Learning
from gpupack_simulator.engine.maintenance import Calendar, NodeChange
from gpupack_simulator.engine.outages import Outages
from gpupack_simulator.engine.recorder import (
    Recorder,
    allocated_of,
    capacity_of,
    job_record,
    without_slices,
)
from gpupack_simulator.engine.sampling import Sampler
from gpupack_simulator.engine.settings import Settings
from gpupack_simulator.errors import InvalidJob
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.record import Run, Sample, State

_DEFAULTS = Settings()


class Simulator:
    """A simulation of one policy with one seed.

    It runs step by step, with `now`, `cluster` and `state()` in between, or all at once:

    >>> run = Simulator(nodes, jobs, "fgd", Settings(discipline="backfill")).run()

    Between steps jobs can also be submitted and cancelled.
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
        self._expected = {job.id: job for job in _distinct(jobs)}
        """Jobs that have not arrived."""
        self._policy = policy_named(policy) if isinstance(policy, str) else policy
        self._name = policy if isinstance(policy, str) else policy.name
        self._recorder = Recorder(
            settings.measured_from,
            settings.occupancy,
            inventory={node.name: node for node in self.cluster.nodes()},
        )
        self._recorder.allocated = int(allocated_of(self.cluster).sum())
        if settings.occupancy:
            self._recorder.record_snapshot_holders(self.cluster)
        self._calendar = Calendar(settings.maintenance, settings.presence)
        learning = Learning(self._policy, settings.mix)
        self._dispatcher = JobDispatcher(self.cluster, learning, self._recorder, settings)
        self._outages = Outages({node.name: node for node in self.cluster.nodes()}, self._calendar)
        if self._calendar.changes_nodes:
            self._dispatcher.expect_nodes(self.cluster.fork())
        for each in settings.presence:
            self._outages.update_node(self.cluster, each.node, 0.0)
        self._sampler = Sampler(
            self.cluster, settings.sampling, capacity_of(self.cluster), self._expected.values()
        )
        self._wall = 0.0
        self._schedule(self._dispatcher.events)

    @property
    def now(self) -> float:
        """The clock, in the run's unit."""
        return self._dispatcher.now

    def step(self) -> bool:
        """Execute the next instant; return False if nothing more happens."""
        time = self._dispatcher.events.next_time
        if time > self.settings.until or time == inf or self._idle():
            return False
        self._pass_time(time)
        events = self._dispatcher.events
        while (event := events.pop_at(time, before=EventKind.SAMPLE)) is not None:
            self._execute(event)
        self._dispatcher.run_queue()
        if events.drop_samples(time):
            self._sampler.take(self._dispatcher, self._recorder)
            events.add(time + self.settings.sampling.every, EventKind.SAMPLE)
        else:
            self._sampler.take_if_due(self._dispatcher, self._recorder)
        return True

    def submit(self, job: Job) -> None:
        """Submit a job that arrives at its time, now or later.

        Fragmentation, if sampled, is measured for the jobs that were known from the start.

        Raises:
            InvalidJob: its arrival is in the past, or a job has that name.
        """
        if job.arrival < self.now:
            raise InvalidJob(
                f"job {job.id} arrives at {job.arrival:g}, which is over: it is {self.now:g}"
            )
        if job.id in self._expected or self._dispatcher.has_arrived(job.id):
            raise InvalidJob(f"two jobs have the id {job.id}")
        self._expected[job.id] = job
        self._dispatcher.events.add(job.arrival, EventKind.ARRIVE, job)

    def cancel(self, job: JobId) -> None:
        """Cancel a job when the next step begins; a job that has ended stays as it is.

        A job that has not arrived never does, and leaves no record.

        Raises:
            InvalidJob: there is no such job.
        """
        if self._expected.pop(job, None) is not None:
            return
        if not self._dispatcher.has_arrived(job):
            raise InvalidJob(f"there is no job {job} to be cancelled")
        self._dispatcher.events.add(self.now, EventKind.CANCEL, Cancelled(job))

    def run(self, until: float | None = None) -> Run:
        """Run to the end, or through this time; return the record so far."""
        self.advance(inf if until is None else until)
        return self.record()

    def advance(self, until: float) -> None:
        """Execute all events up to this time, which the clock then shows."""
        begun = perf_counter()
        while self._dispatcher.events.next_time <= until:
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

    @property
    def speculative_delays(self) -> tuple[float, ...]:
        """Delays of jobs that waited for speculative backfill although they would have fitted."""
        return self._dispatcher.speculative_delays

    def state(self) -> State:
        """Return the current state, for printing."""
        dispatcher = self._dispatcher
        return State(
            time=self.now,
            time_unit=self.settings.time_unit,
            policy=self._name,
            cluster=self.cluster,
            jobs=tuple(job_record(entry, self.now) for entry in dispatcher.entries),
            expected=tuple(sorted(self._expected.values(), key=lambda job: job.arrival)),
            sample=self.sample(),
        )

    def sample(self) -> Sample:
        """Return a sample of the current state."""
        return self._sampler.sample(self._dispatcher, self._recorder)

    def record(self) -> Run:
        """Return the record of the run so far."""
        dispatcher, recorder, settings = self._dispatcher, self._recorder, self.settings
        running = (
            held for entry in dispatcher.running.values() for held in recorder.held_by(entry, None)
        )
        return Run(
            policy=self._name,
            seed=settings.seed,
            parameters={"discipline": settings.discipline, **settings.parameters},
            time_unit=settings.time_unit,
            nodes=tuple(map(without_slices, self._outages.healthy.values())),
            jobs=tuple(job_record(entry, self.now) for entry in dispatcher.entries),
            samples=tuple(self._sampler.samples),
            occupancy=(*recorder.occupancy, *running),
            losses=tuple(recorder.losses),
            outages=self._outages.all(),
            measured_from=settings.measured_from,
            allocated_milli_time=recorder.area,
            ended=self.now,
            events=recorder.events,
            seconds_of_wall=self._wall,
            consolidations=tuple(recorder.consolidations),
        )

    def _schedule(self, events: EventQueue) -> None:
        for job in self._expected.values():
            events.add(job.arrival, EventKind.ARRIVE, job)
        for breakdown in self.settings.breakdowns:
            events.add(breakdown.at, EventKind.FAIL, breakdown.component)
            events.add(breakdown.until, EventKind.REPAIR, breakdown.component)
        for time, turned in self._calendar.changes():
            events.add(time, EventKind.NODE_CHANGE, turned)
        if self.settings.sampling.each_instant or self.settings.sampling.every < inf:
            # A sample at 0: free capacity before the first arrival has its cause too.
            events.add(0.0, EventKind.SAMPLE)

    def _idle(self) -> bool:
        """Tell whether the remaining events change nothing.

        Either no job runs, waits or is to come; or running jobs never end and the jobs that wait
        for them wait forever: samples of that would go on without end.
        """
        dispatcher = self._dispatcher
        return dispatcher.events.only_samples_left or (
            not self._expected and not dispatcher.running and not len(dispatcher.queue)
        )

    def _pass_time(self, time: float) -> None:
        self._recorder.pass_time(self._dispatcher.now, time)
        self._dispatcher.now = time

    def _execute(self, event: Event) -> None:
        self._recorder.events += 1
        match event.subject:
            case Job() as job:
                # It is another job if it was cancelled and its name was used again.
                if self._expected.get(job.id) is job:
                    del self._expected[job.id]
                    self._dispatcher.arrive(job)
            case Cancelled() as cancelled:
                self._dispatcher.cancel(cancelled)
            case Ended() as ended:
                self._dispatcher.finish(ended)
            case Stop() as stop:
                self._dispatcher.stop(stop)
            case NodeChange() as turned:
                self._apply_node_change(turned.node)
            case Component() as component if event.kind is EventKind.FAIL:
                self._fail(component)
            case Component() as component:
                self._repair(component)
            case None:
                pass

    def _repair(self, component: Component) -> None:
        if self._outages.repair(self.cluster, component, self.now):
            self._dispatcher.record_node_change(component.node)

    def _apply_node_change(self, node: NodeName) -> None:
        """Apply a change of maintenance or presence; jobs leave before their node does."""
        dispatcher, calendar = self._dispatcher, self._calendar
        if not calendar.is_present(node, self.now):
            for entry in dispatcher.fail_component(Component(node)):
                dispatcher.kill(entry, node, requeue=self.settings.requeue)
        self._outages.update_node(self.cluster, node, self.now)
        dispatcher.record_node_change(node)
        dispatcher.drain(calendar.drains(self.now))
        for devices in calendar.stopped(node, self.now):
            for device in (None,) if devices is None else sorted(devices):
                dispatcher.stop_for_maintenance(Component(node, device))

    def _fail(self, component: Component) -> None:
        if self._outages.fail(self.cluster, component, self.now):
            self._dispatcher.record_node_change(component.node)
            for entry in self._dispatcher.fail_component(component):
                self._dispatcher.kill(entry, component.node, requeue=self.settings.requeue)


def _cluster(nodes: Iterable[Node], seed: int) -> Cluster:
    return Cluster(nodes, tie_seed=seed)


def _distinct(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Return the jobs in the order of arrival; ties keep the given order."""
    ordered = tuple(sorted(jobs, key=lambda job: job.arrival))
    seen: set[JobId] = set()
    for job in ordered:
        if job.id in seen:
            raise InvalidJob(f"two jobs have the id {job.id}")
        seen.add(job.id)
    return ordered
