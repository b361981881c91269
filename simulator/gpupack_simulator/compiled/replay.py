# SPDX-License-Identifier: Apache-2.0
"""A run in machine code, stretch by stretch."""

from collections.abc import Iterator, Sequence
from math import inf
from time import perf_counter

import numpy as np

from gpupack_devices.units import NO_MEMORY
from gpupack_placement import (
    WHOLE_GPU,
    Cluster,
    Gang,
    Grant,
    MilliGpu,
    Node,
    Placement,
    policy_named,
)
from gpupack_simulator.compiled.engine import advance
from gpupack_simulator.compiled.inputs import (
    ends_of,
    forget_scores,
    jobs_of,
    nodes_of,
    prices_of,
    request_classes_of,
    samples_of,
)
from gpupack_simulator.compiled.tables import DROPPED, RUNS, STATE, SUCCEEDED, WAITS, Rules
from gpupack_simulator.disciplines import discipline_named
from gpupack_simulator.engine.dispatcher import never_fits
from gpupack_simulator.engine.learning import Learning
from gpupack_simulator.engine.recorder import capacity_of, without_slices
from gpupack_simulator.engine.settings import Settings
from gpupack_simulator.job import Job
from gpupack_simulator.record import End, JobRecord, Run, Sample

_ENDS = {WAITS: End.WAITING, RUNS: End.RUNNING, SUCCEEDED: End.SUCCEEDED, DROPPED: End.DROPPED}


class Replay:
    """A run of one policy and one seed; inputs.can_do must hold."""

    def __init__(
        self, nodes: Sequence[Node], jobs: Sequence[Job], policy: str, settings: Settings
    ) -> None:
        self._settings, self._policy = settings, policy
        self._cluster = Cluster(nodes, tie_seed=settings.seed)
        self._jobs = sorted(jobs, key=lambda job: job.arrival)
        self._learning = Learning(policy_named(policy), settings.mix)
        self._gangs, class_of = _request_classes(self._jobs)
        keeps = discipline_named(settings.discipline).keeps
        self._never = [
            never_fits(self._cluster, gang, self._learning.policy) if keeps else ""
            for gang in self._gangs
        ]
        sampling, capacity = settings.sampling, capacity_of(self._cluster)
        self._rules = Rules(
            keeps=keeps,
            until=float(settings.until),
            measured_from=float(settings.measured_from),
            sample_every=float(sampling.every),
            demand_step=float(sampling.demand_step * capacity),
        )
        self._devices = [self._cluster.devices_at(row) for row in range(len(nodes))]
        self._nodes = nodes_of(self._cluster)
        self._classes = request_classes_of(self._gangs, self._cluster, self._never)
        self._table = jobs_of(self._jobs, class_of)
        self._ends, self._samples = ends_of(self._jobs), samples_of(self._jobs, settings)
        self._states = np.zeros(1, STATE)
        self._states["next_sample"] = 0.0 if sampling.every < inf else inf
        self._states["next_demand"] = self._rules.demand_step
        self._capacity, self._learned, self._departed = capacity, 0, 0

    def run(self) -> Run:
        """Run to the end."""
        begun, state = perf_counter(), self._states[0]
        prices, known = prices_of(self._learning.policy, self._cluster), self._learning.policy
        over = False
        while not over:
            state["due"] = state["arrived"] + self._learning.due_in
            over = advance(
                self._states,
                self._rules,
                self._nodes,
                self._classes,
                self._table,
                self._ends,
                self._samples,
                prices,
            )
            self._learn(int(state["arrived"]))
            if self._learning.policy is not known:
                known = self._learning.policy
                prices = prices_of(known, self._cluster)
                forget_scores(self._classes)
        return self._record(perf_counter() - begun)

    def _learn(self, arrived: int) -> None:
        """Learn from arrivals and departures in the order of engine/."""
        new = slice(self._learned, arrived)
        before = self._table.finished_before[new].tolist()
        for job, finished in zip(self._jobs[new], before, strict=True):
            for _ in range(self._departed, finished):
                self._learning.departed(job)
            self._departed = finished
            self._learning.arrived(job)
        self._learned = arrived

    def _record(self, seconds: float) -> Run:
        state, settings = self._states[0], self._settings
        now, area = float(state["now"]), float(state["area"])
        if settings.until < inf:
            since, end = max(now, settings.measured_from), max(settings.until, now)
            area += int(state["allocated_milli"]) * (end - since) if end > since else 0.0
            now = end
        return Run(
            policy=self._policy,
            seed=settings.seed,
            parameters={"discipline": settings.discipline, **settings.parameters},
            time_unit=settings.time_unit,
            nodes=tuple(map(without_slices, self._cluster.nodes())),
            jobs=tuple(self._records(int(state["arrived"]), now)),
            samples=tuple(self._sampled(int(state["samples"]))),
            occupancy=(),
            losses=(),
            outages=(),
            measured_from=settings.measured_from,
            allocated_milli_time=area,
            ended=now,
            events=int(state["events"]),
            seconds_of_wall=seconds,
        )

    def _records(self, arrived: int, now: float) -> Iterator[JobRecord]:
        table, known = self._table, dict[tuple[int, int, int], Placement]()
        columns = (
            table.request_class,
            table.state,
            table.started,
            table.ended,
            table.node,
            table.devices,
        )
        lists = (column[:arrived].tolist() for column in columns)
        for job, class_, state, started, ended, row, devices in zip(
            self._jobs[:arrived], *lists, strict=True
        ):
            placements: tuple[Placement, ...] = ()
            if state in {RUNS, SUCCEEDED}:
                key = class_, row, devices
                if key not in known:
                    known[key] = self._placement(self._gangs[class_], row, devices)
                placements = (known[key],)
            dropped = state == DROPPED
            since = now if state == WAITS else started
            yield JobRecord(
                job=job,
                submitted=job.arrival,
                started=started if placements else None,
                ended=ended if state in {SUCCEEDED, DROPPED} else None,
                end=_ENDS[state],
                placements=placements,
                attempts=len(placements),
                wait=None if dropped else since - job.arrival,
                reason=self._never[class_] if dropped else "",
            )

    def _placement(self, gang: Gang, row: int, devices: int) -> Placement:
        request, there = gang.request, self._devices[row]
        grants = (
            Grant(
                device.uuid,
                request.share.milli if request.share else MilliGpu(WHOLE_GPU),
                NO_MEMORY if request.share else device.memory,
            )
            for column, device in enumerate(there)
            if devices >> column & 1
        )
        return Placement(self._cluster.name_at(row), tuple(grants), request.cpu, request.memory)

    def _sampled(self, number: int) -> Iterator[Sample]:
        for time, arrived, allocated, queued, running in zip(
            *(column[:number].tolist() for column in self._samples), strict=True
        ):
            yield Sample(time, arrived, allocated, self._capacity, None, queued, running)


def _request_classes(jobs: Sequence[Job]) -> tuple[list[Gang], dict[int, int]]:
    """Return the gangs, and the number of each by the identity of a request."""
    numbers, class_of = dict[Gang, int](), dict[int, int]()
    for job in jobs:
        if id(job.request) not in class_of:
            class_of[id(job.request)] = numbers.setdefault(job.gang, len(numbers))
    return list(numbers), class_of
