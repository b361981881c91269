# SPDX-License-Identifier: Apache-2.0
"""A scenario in YAML: nodes, jobs, failures. Memory in GiB, CPU in cores, times in `timeUnit`.

    timeUnit: step            # or s (seconds)
    until: 10                 # the end at the latest; left out: when all jobs are through
    discipline: fifo          # drop, fifo, fifo-skip, backfill, priority
    nodes:
      - {name: node1, gpus: 4, model: A100, gpuMemory: 80, cpu: 64, memory: 512, count: 3}
    jobs:
      - {name: train, arrival: 2, gpus: 2, minGpuMemory: 40, workers: 4, duration: 5}
      - {name: notebook, share: {percent: 30, memory: 8}, duration: 100, priority: 5}
    failures:
      - {node: node1-0, gpu: 2, at: 3, until: 6}
    failureRates: {gpuBetween: 5000, gpuRepair: 24}

What a node leaves out it has in plenty; `count` makes so many nodes, NAME-0 and on. What a job
leaves out it does not ask for; without `duration` it never ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from gpupack_core import (
    CoreError,
    Device,
    DeviceUuid,
    Interconnect,
    MiB,
    MilliCpu,
    MilliGpu,
    Node,
    NodeName,
    Request,
    Share,
    Spread,
)
from gpupack_simulator.engine.events import Part
from gpupack_simulator.errors import SimulatorError
from gpupack_simulator.failures import NEVER, Breakdown, FailureRates
from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.typed import fields_of, items, one
from gpupack_simulator.inputs.yamlfile import Document
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.queueing import discipline_named
from gpupack_simulator.record import TimeUnit

_GIB = 1024
_PERCENT = 10
_PLENTY_CPU = MilliCpu(1_000_000)
_PLENTY_MEMORY = MiB(1 << 30)

Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Gpus = Annotated[int, Meta(ge=0, le=1024)]
Gib = Annotated[float, Meta(gt=0, le=1 << 20)]
Cores = Annotated[float, Meta(ge=0, le=1 << 20)]
Time = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]


class NodeSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `nodes`. `clique_size`: GPUs that NVLink joins; 0: none is joined."""

    name: Name
    gpus: Gpus
    gpu_memory: Gib = 80.0
    model: Name = "GPU"
    cpu: Cores | None = None
    memory: Gib | None = None
    count: Count = 1
    clique_size: Gpus = 0
    labels: dict[str, str] = {}


class ShareSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """A part of one GPU."""

    percent: Annotated[float, Meta(gt=0, lt=100)]
    memory: Annotated[float, Meta(ge=0, le=1 << 20)] = 0.0


class SpreadSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """Which nodes the workers of a gang may share."""

    max_nodes: Count | None = None
    one_worker_per_node: bool = False
    same_clique: bool = False


class JobSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `jobs`; the figures are of each worker."""

    name: Name
    gpus: Gpus | None = None
    share: ShareSpec | None = None
    gpu_models: list[Name] = []
    min_gpu_memory: Annotated[float, Meta(ge=0, le=1 << 20)] = 0.0
    interconnect: Interconnect = Interconnect.ANY
    cpu: Cores = 0.0
    memory: Annotated[float, Meta(ge=0, le=1 << 20)] = 0.0
    workers: Count = 1
    spread: SpreadSpec = field(default_factory=SpreadSpec)
    arrival: Time = 0.0
    duration: Positive = inf
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0
    count: Count = 1


class FailureSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `failures`. `gpu`: its index; left out: the whole node."""

    node: Name
    at: Time
    gpu: Annotated[int, Meta(ge=0)] | None = None
    until: Positive = inf


class RatesSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """`failureRates`: mean times."""

    node_between: Positive = inf
    node_repair: Positive = 1.0
    gpu_between: Positive = inf
    gpu_repair: Positive = 1.0


class _Frame(Struct, rename="camel", forbid_unknown_fields=True):
    """All but the lists, which are read item by item."""

    time_unit: Literal["step", "s"] = "step"
    until: Positive = inf
    discipline: Name = "fifo"
    requeue: bool = True
    failure_rates: RatesSpec = field(default_factory=RatesSpec)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A file that was read without a fault."""

    name: str
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    time_unit: TimeUnit = TimeUnit.STEP
    until: float = inf
    discipline: str = "fifo"
    requeue: bool = True
    breakdowns: tuple[Breakdown, ...] = ()
    rates: FailureRates = NEVER


_LISTS = ("nodes", "jobs", "failures")


def read_scenario(path: Path, *, jobs_from_elsewhere: bool = False) -> Scenario:
    """The scenario; `jobs_from_elsewhere`: it need not name jobs.

    Raises:
        InvalidInput: with every fault of the file.
    """
    faults = Faults(path)
    reading = _Reading(Document(faults), faults)
    scenario = reading.scenario(path.stem)
    if not scenario.jobs and not jobs_from_elsewhere and not len(faults):
        faults.add(1, "jobs", "a scenario needs at least one job")
    faults.check()
    return scenario


def read_jobs(path: Path) -> tuple[Job, ...]:
    """A file with `jobs` alone, as in a scenario: what if they came?

    Raises:
        InvalidInput: with every fault of the file.
    """
    faults = Faults(path)
    document = Document(faults)
    reading = _Reading(document, faults)
    top = fields_of(document.data, "", document, faults)
    for name in top:
        if name != "jobs":
            faults.add(document.line(str(name)), str(name), "only jobs are expected here")
    jobs = reading.jobs(top.get("jobs"))
    if not jobs and not len(faults):
        faults.add(1, "jobs", "there are none")
    faults.check()
    return jobs


class _Reading:
    """Of one document; faults are collected on the way."""

    def __init__(self, document: Document, faults: Faults) -> None:
        self._document, self._faults = document, faults

    def scenario(self, name: str) -> Scenario:
        top = fields_of(self._document.data, "", self._document, self._faults)
        rest = {key: value for key, value in top.items() if key not in _LISTS}
        frame = one(rest, _Frame, "", self._document, self._faults) or _Frame()
        nodes = self._nodes(top.get("nodes"))
        if not nodes and not len(self._faults):
            self._fault("nodes", "a scenario needs at least one node")
        self._attempt("discipline", lambda: discipline_named(frame.discipline))
        rates = FailureRates(
            node_between=frame.failure_rates.node_between,
            node_repair=frame.failure_rates.node_repair,
            gpu_between=frame.failure_rates.gpu_between,
            gpu_repair=frame.failure_rates.gpu_repair,
        )
        if rates.any and not isfinite(frame.until):
            self._fault("failureRates", "rates need a time at which the run ends: until")
        return Scenario(
            name=name,
            nodes=nodes,
            jobs=self.jobs(top.get("jobs")),
            time_unit=TimeUnit(frame.time_unit),
            until=frame.until,
            discipline=frame.discipline,
            requeue=frame.requeue,
            breakdowns=self._breakdowns(top.get("failures"), nodes),
            rates=rates,
        )

    def jobs(self, data: Any) -> tuple[Job, ...]:
        """In the order of the file."""
        found: dict[str, Job] = {}
        for path, spec in items(data, JobSpec, "jobs", self._document, self._faults):
            for job in self._attempt(path, lambda spec=spec: tuple(_jobs(spec))) or ():
                if job.id in found:
                    self._fault(f"{path}.name", f"there is a job {job.id} above")
                found[job.id] = job
        return tuple(found.values())

    def _nodes(self, data: Any) -> tuple[Node, ...]:
        found: dict[str, Node] = {}
        for path, spec in items(data, NodeSpec, "nodes", self._document, self._faults):
            for node in self._attempt(path, lambda spec=spec: tuple(_nodes(spec))) or ():
                if node.name in found:
                    self._fault(f"{path}.name", f"there is a node {node.name} above")
                found[node.name] = node
        return tuple(found.values())

    def _breakdowns(self, data: Any, nodes: tuple[Node, ...]) -> tuple[Breakdown, ...]:
        by_name = {str(node.name): node for node in nodes}
        found = []
        for path, spec in items(data, FailureSpec, "failures", self._document, self._faults):
            node = by_name.get(spec.node)
            if node is None:
                self._fault(f"{path}.node", f"there is no node {spec.node}")
            elif spec.gpu is not None and spec.gpu >= len(node.devices):
                has = f"{spec.node} has GPUs 0 to {len(node.devices) - 1}"
                self._fault(f"{path}.gpu", f"{has}, not {spec.gpu}" if node.devices else "no GPUs")
            else:
                broken = self._attempt(path, lambda spec=spec, node=node: _breakdown(spec, node))
                found += [] if broken is None else [broken]
        return tuple(found)

    def _attempt(self, path: str, make: Any) -> Any:
        """What core or the simulator refuses to build becomes a fault of that field."""
        try:
            return make()
        except (CoreError, SimulatorError) as error:
            self._fault(path, str(error))
            return None

    def _fault(self, path: str, message: str) -> None:
        self._faults.add(self._document.line(path), path, message)


def _nodes(spec: NodeSpec) -> Iterator[Node]:
    for number in range(spec.count):
        name = spec.name if spec.count == 1 else f"{spec.name}-{number}"
        yield Node(
            NodeName(name),
            tuple(_device(spec, name, index) for index in range(spec.gpus)),
            _PLENTY_CPU if spec.cpu is None else MilliCpu(round(spec.cpu * 1000)),
            _PLENTY_MEMORY if spec.memory is None else _mib(spec.memory),
            spec.labels,
        )


def _device(spec: NodeSpec, node: str, index: int) -> Device:
    clique = index // spec.clique_size if spec.clique_size else None
    uuid = DeviceUuid(f"{node}-gpu-{index}")
    return Device(uuid, index, spec.model, _mib(spec.gpu_memory), clique=clique)


def _jobs(spec: JobSpec) -> Iterator[Job]:
    request = _request(spec)
    spread = Spread(spec.spread.max_nodes, spec.spread.one_worker_per_node, spec.spread.same_clique)
    for number in range(spec.count):
        yield Job(
            JobId(spec.name if spec.count == 1 else f"{spec.name}-{number}"),
            spec.arrival,
            request,
            spec.workers,
            spec.duration,
            spec.priority,
            spread,
        )


def _request(spec: JobSpec) -> Request:
    share = None
    if spec.share is not None:
        milli = MilliGpu(round(spec.share.percent * _PERCENT))
        share = Share(milli, _mib(spec.share.memory))
    return Request(
        gpus=spec.gpus,
        share=share,
        models=tuple(spec.gpu_models),
        min_memory=_mib(spec.min_gpu_memory),
        interconnect=spec.interconnect,
        cpu=MilliCpu(round(spec.cpu * 1000)),
        memory=_mib(spec.memory),
    )


def _breakdown(spec: FailureSpec, node: Node) -> Breakdown:
    uuid = None if spec.gpu is None else node.devices[spec.gpu].uuid
    return Breakdown(Part(node.name, uuid), spec.at, spec.until)


def _mib(gib: float) -> MiB:
    return MiB(round(gib * _GIB))
