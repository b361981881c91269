# SPDX-License-Identifier: Apache-2.0
"""Requests: one worker's request, and a gang of workers in one or several roles."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import repeat
from typing import Final

from gpupack_devices.errors import InvalidRequest
from gpupack_devices.units import NO_CPU, NO_MEMORY, WHOLE_GPU, MiB, MilliCpu, MilliGpu
from gpupack_placement.extended import NO_AMOUNTS, Amounts, require_amounts
from gpupack_placement.selector import NodeSelector, Toleration

_KINDS = 3
"""The number of kinds of request: GPUs, a share, slices."""


class Interconnect(StrEnum):
    """The required link between the GPUs of one worker."""

    ANY = "any"
    NVLINK = "nvlink"


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one GPU. `memory` 0: unknown, as in traces that do not record it.

    `group`: a GPU has shares of only one group at a time. `limited`: the share needs a GPU that
    enforces the limits of its shares (model.Device).
    """

    milli: MilliGpu
    memory: MiB
    group: str = ""
    limited: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.milli < WHOLE_GPU:
            raise InvalidRequest(f"a share is 1 to 999 milli-GPU, not {self.milli}")
        if self.memory < 0:
            raise InvalidRequest(f"a share's memory cannot be {self.memory} MiB")


REPLICA: Final = "replica"
"""Profile of a replica of a GPU that another plugin hands out several times (time-slicing, MPS).

A replica counts as a slice: it is held wholly or not at all, and is no whole GPU. It isolates
nothing."""


@dataclass(frozen=True, slots=True)
class Slices:
    """MIG slices of one profile, such as "1g.10gb"; they may be on different GPUs of the node."""

    profile: str
    number: int = 1

    def __post_init__(self) -> None:
        if not self.profile.strip():
            raise InvalidRequest("slices need the name of a MIG profile")
        if self.number < 1:
            raise InvalidRequest(f"{self.number} slices {self.profile}; ask for 1 or more")


@dataclass(frozen=True, slots=True)
class Request:
    """A request of one worker: whole GPUs (0: a CPU-only pod), a share of one, or MIG slices.

    Policies see what a request takes of GPUs that are not cut. For a request for slices they see
    only CPU and memory: they choose the node by these, and devices.py chooses the slices there.
    That a GPU could be cut again, or a larger slice replace a smaller, is not modelled.

    `models` empty: any; otherwise each GPU must match one of them (models.matches_model).
    `min_memory` requests devices of at least this capacity. NVLINK: all GPUs of the worker are in
    one clique; one GPU needs no link. `cpu` and `memory` are the pod's requests. `resource`: the
    resource name of the GPUs, as in model.Device. `healthy_only`: DEGRADED devices do not serve it;
    placement prefers that (serving.with_healthy_only). `extended`: amounts of resources that have
    no field here, by name (extended.py).
    """

    gpus: int | None = None
    share: Share | None = None
    models: tuple[str, ...] = ()
    min_memory: MiB = NO_MEMORY
    interconnect: Interconnect = Interconnect.ANY
    cpu: MilliCpu = NO_CPU
    memory: MiB = NO_MEMORY
    selector: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()
    resource: str = ""
    slices: Slices | None = None
    healthy_only: bool = False
    extended: Amounts = NO_AMOUNTS

    def __post_init__(self) -> None:
        if (self.gpus, self.share, self.slices).count(None) != _KINDS - 1:
            raise InvalidRequest("ask for exactly one of gpus, share and slices")
        if self.slices is not None and self.interconnect is Interconnect.NVLINK:
            raise InvalidRequest("MIG slices have no NVLink; ask for interconnect any")
        if self.gpus is not None and self.gpus < 0:
            raise InvalidRequest(f"gpus is {self.gpus}; ask for 0 or more")
        if min(self.cpu, self.memory, self.min_memory) < 0:
            raise InvalidRequest("cpu, memory and min_memory must not be negative")
        if not all(model.strip() for model in self.models):
            raise InvalidRequest("a model name is empty")
        if self.extended:
            require_amounts(self.extended, of="request", error=InvalidRequest)

    @property
    def needs_gpu(self) -> bool:
        """Whether it needs a device; False for a CPU-only pod."""
        return bool(self.devices)

    @property
    def devices(self) -> int:
        """Number of devices: GPUs, slices, or the one GPU of a share."""
        if self.slices is not None:
            return self.slices.number
        return 1 if self.share is not None else self.gpus or 0

    @property
    def needs_clique(self) -> bool:
        """Whether all GPUs must come from one NVLink clique."""
        return self.interconnect is Interconnect.NVLINK and (self.gpus or 0) > 1

    @property
    def milli(self) -> MilliGpu:
        """Requested GPU capacity over all devices; slices count nothing."""
        return self.share.milli if self.share else MilliGpu((self.gpus or 0) * WHOLE_GPU)


@dataclass(frozen=True, slots=True)
class Spread:
    """The limits on where the workers of a gang are.

    `max_nodes`: maximum number of nodes of the gang; None: no limit. `same_clique`: the GPUs of all
    workers are in one NVLink clique of one node. A GPU without NVLink is a clique of its own, which
    shares may have in common.
    """

    max_nodes: int | None = None
    one_worker_per_node: bool = False
    same_clique: bool = False

    def __post_init__(self) -> None:
        if self.max_nodes is not None and self.max_nodes < 1:
            raise InvalidRequest(f"max_nodes is {self.max_nodes}; ask for 1 or more")

    @property
    def node_limit(self) -> int | None:
        """`max_nodes`, or 1 with `same_clique`."""
        return 1 if self.same_clique else self.max_nodes

    def combined(self, other: "Spread") -> "Spread":
        """Return the limits of both together."""
        limits = [each.max_nodes for each in (self, other) if each.max_nodes is not None]
        return Spread(
            min(limits, default=None),
            self.one_worker_per_node or other.one_worker_per_node,
            self.same_clique or other.same_clique,
        )


WORKER: Final = "worker"
"""The name of the role of a gang whose workers are all alike."""


@dataclass(frozen=True, slots=True)
class Role:
    """Identical workers of a gang: `spread` limits where they are, whatever the other roles do."""

    name: str
    workers: int
    request: Request
    spread: Spread = Spread()

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise InvalidRequest("a role needs a name")
        if self.workers < 1:
            raise InvalidRequest(f"workers is {self.workers}; ask for 1 or more")

    @property
    def milli(self) -> MilliGpu:
        """Requested GPU capacity of all its workers."""
        return MilliGpu(self.request.milli * self.workers)

    @property
    def max_per_node(self) -> int:
        """The maximum number of its workers on one node."""
        return 1 if self.spread.one_worker_per_node else self.workers

    def check(self) -> None:
        """Check that its limits can be kept.

        Raises:
            InvalidRequest: they contradict one another or the request.
        """
        spread, nodes = self.spread, self.spread.max_nodes
        if spread.one_worker_per_node and nodes is not None and nodes < self.workers:
            raise InvalidRequest(
                f"{self.workers} workers on different nodes need max_nodes of at least "
                f"{self.workers}, not {nodes}"
            )
        if not spread.same_clique:
            return
        if self.request.slices is not None or not self.request.needs_gpu:
            raise InvalidRequest("same_clique is a rule about GPUs; ask for GPUs or shares")
        if spread.one_worker_per_node and self.workers > 1:
            raise InvalidRequest("workers in one clique are on one node, not on one each")


@dataclass(frozen=True, slots=True)
class Gang:
    """Workers that are placed together or not at all: one role or several.

    `spread` limits where the workers of all roles are. A worker's index counts through the roles in
    their order, so the first worker of the first role has index 0.
    """

    roles: tuple[Role, ...]
    spread: Spread = Spread()

    def __post_init__(self) -> None:
        if not self.roles:
            raise InvalidRequest("a gang needs a role")
        names = [role.name for role in self.roles]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidRequest(f"two roles are named {twice[0]}; give each its own name")
        for role in self.limited_roles:
            try:
                role.check()
            except InvalidRequest as error:
                at = f"role {role.name}: " if len(names) > 1 else ""
                raise InvalidRequest(f"{at}{error}") from error
        if len(names) > 1:
            Role("all", self.workers, self.roles[0].request, self.spread).check()

    @classmethod
    def of(cls, workers: int, request: Request, spread: Spread = Spread()) -> "Gang":
        """Return a gang of identical workers."""
        return cls((Role(WORKER, workers, request),), spread)

    @property
    def workers(self) -> int:
        """Number of workers of all roles."""
        return sum([role.workers for role in self.roles])

    @property
    def milli(self) -> MilliGpu:
        """Requested GPU capacity of all workers."""
        return MilliGpu(sum([role.milli for role in self.roles]))

    @property
    def requests(self) -> tuple[Request, ...]:
        """The request of each role, in their order."""
        return tuple([role.request for role in self.roles])

    @property
    def limited_roles(self) -> tuple[Role, ...]:
        """The roles, each with the limits of the gang in addition to its own."""
        if self.spread == Spread():
            return self.roles
        return tuple(replace(r, spread=r.spread.combined(self.spread)) for r in self.roles)

    @property
    def is_spread(self) -> bool:
        """Whether anything limits where its workers are."""
        return any(each != Spread() for each in (self.spread, *(r.spread for r in self.roles)))

    def role(self, name: str) -> Role | None:
        """Return the role of this name; None: there is none."""
        return next((role for role in self.roles if role.name == name), None)

    def role_of_each_worker(self) -> Iterator[Role]:
        """Yield the role of each worker, by index."""
        for role in self.roles:
            yield from repeat(role, role.workers)

    def with_requests(self, requests: Iterable[Request]) -> "Gang":
        """Return the gang with these requests of its roles instead."""
        pairs = zip(self.roles, requests, strict=True)
        return replace(self, roles=tuple(replace(role, request=each) for role, each in pairs))
