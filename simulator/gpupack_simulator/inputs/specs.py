# SPDX-License-Identifier: Apache-2.0
"""The entries of a scenario's YAML, and their conversion."""

from collections.abc import Iterator
from math import inf
from typing import Annotated

from msgspec import Meta, Struct, field

from gpupack_placement import (
    MAX_AMOUNT,
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
    amounts,
)
from gpupack_simulator.engine.events import Component
from gpupack_simulator.engine.maintenance import Drain, Maintenance, Presence
from gpupack_simulator.failures import Breakdown
from gpupack_simulator.job import Job, JobId

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
Resources = dict[Name, Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]]
"""Resources other than CPU, memory and GPUs, by name; memory and disk in bytes."""


class NodeSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `nodes`. `clique_size`: number of GPUs that NVLink connects; 0: none."""

    name: Name
    gpus: Gpus
    gpu_memory: Gib = 80.0
    model: Name = "GPU"
    cpu: Cores | None = None
    memory: Gib | None = None
    count: Count = 1
    clique_size: Gpus = 0
    labels: dict[str, str] = {}
    resources: Resources = {}
    joins: Time = 0.0
    leaves: Positive = inf


class ShareSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """A share of one GPU."""

    percent: Annotated[float, Meta(gt=0, lt=100)]
    memory: Annotated[float, Meta(ge=0, le=1 << 20)] = 0.0


class FallbackSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """An order of preference among `gpuModels`; `after`: time that permits one more."""

    after: Positive


class SpreadSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """The spread of a gang's workers over nodes."""

    max_nodes: Count | None = None
    one_worker_per_node: bool = False
    same_clique: bool = False


class JobSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `jobs`; amounts are per worker."""

    name: Name
    gpus: Gpus | None = None
    share: ShareSpec | None = None
    gpu_models: list[Name] = []
    gpu_model_fallback: FallbackSpec | None = None
    min_gpu_memory: Annotated[float, Meta(ge=0, le=1 << 20)] = 0.0
    interconnect: Interconnect = Interconnect.ANY
    cpu: Cores = 0.0
    memory: Annotated[float, Meta(ge=0, le=1 << 20)] = 0.0
    resources: Resources = {}
    workers: Count = 1
    min_workers: Count | None = None
    efficiency: Annotated[float, Meta(gt=0, le=1)] = 1.0
    resize_pause: Time = 0.0
    spread: SpreadSpec = field(default_factory=SpreadSpec)
    arrival: Time = 0.0
    duration: Positive = inf
    walltime: Positive | None = None
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0
    tenant: str = ""
    user: str = ""
    reservation: str = ""
    preemptible: bool = True
    movable: bool = False
    checkpoint: Positive = inf
    reports_checkpoints: bool = False
    restart: Time = 0.0
    count: Count = 1


class FailureSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `failures`. `gpu`: its index; left out: the whole node."""

    node: Name
    at: Time
    gpu: Annotated[int, Meta(ge=0)] | None = None
    until: Positive = inf


class MaintenanceSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """One entry of `maintenance`. `gpus`: their indices; left out: the whole node."""

    node: Name
    at: Time
    gpus: list[Annotated[int, Meta(ge=0)]] | None = None
    until: Positive = inf
    drain: Drain = Drain.NEVER
    stop_at: Time | None = None


class RatesSpec(Struct, rename="camel", forbid_unknown_fields=True):
    """The field `failureRates`: mean times."""

    node_between: Positive = inf
    node_repair: Positive = 1.0
    gpu_between: Positive = inf
    gpu_repair: Positive = 1.0


def nodes_of(spec: NodeSpec) -> Iterator[Node]:
    """Yield the nodes of the entry, `count` of them."""
    for number in range(spec.count):
        name = spec.name if spec.count == 1 else f"{spec.name}-{number}"
        yield Node(
            NodeName(name),
            tuple(_device(spec, name, index) for index in range(spec.gpus)),
            _PLENTY_CPU if spec.cpu is None else MilliCpu(round(spec.cpu * 1000)),
            _PLENTY_MEMORY if spec.memory is None else _mib(spec.memory),
            spec.labels,
            extended=amounts(spec.resources),
        )


def _device(spec: NodeSpec, node: str, index: int) -> Device:
    clique = index // spec.clique_size if spec.clique_size else None
    uuid = DeviceUuid(f"{node}-gpu-{index}")
    return Device(uuid, index, spec.model, _mib(spec.gpu_memory), clique=clique)


def jobs_of(spec: JobSpec) -> Iterator[Job]:
    """Yield the jobs of the entry, `count` of them."""
    request = request_of(spec)
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
            spec.tenant,
            spec.preemptible,
            min_workers=spec.min_workers,
            efficiency=spec.efficiency,
            resize_pause=spec.resize_pause,
            movable=spec.movable,
            checkpoint=spec.checkpoint,
            reports_checkpoints=spec.reports_checkpoints,
            restart=spec.restart,
            walltime=spec.walltime,
            user=spec.user,
            model_fallback=spec.gpu_model_fallback.after if spec.gpu_model_fallback else None,
            reservation=spec.reservation,
        )


def request_of(spec: JobSpec) -> Request:
    """Return the request of one worker."""
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
        extended=amounts(spec.resources),
    )


def breakdown_of(spec: FailureSpec, node: Node) -> Breakdown:
    """Return the failure of the node or of its GPU."""
    uuid = None if spec.gpu is None else node.devices[spec.gpu].uuid
    return Breakdown(Component(node.name, uuid), spec.at, spec.until)


def maintenance_of(spec: MaintenanceSpec, node: Node) -> Maintenance:
    """Return the maintenance of the node or of some of its GPUs."""
    devices = None
    if spec.gpus is not None:
        devices = frozenset(node.devices[gpu].uuid for gpu in spec.gpus)
    return Maintenance(node.name, devices, spec.at, spec.until, spec.drain, spec.stop_at)


def presence_of(spec: NodeSpec) -> Iterator[Presence]:
    """Yield the presence of the entry's nodes, unless they are present all the time."""
    if spec.joins or spec.leaves < inf:
        for node in nodes_of(spec):
            yield Presence(node.name, spec.joins, spec.leaves)


def _mib(gib: float) -> MiB:
    return MiB(round(gib * _GIB))
