# SPDX-License-Identifier: Apache-2.0
"""The inventory: nodes and their devices, as the agent and Kubernetes report them. Frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from gpupack_devices.errors import InvalidInventory
from gpupack_devices.units import (
    NO_CPU,
    NO_MEMORY,
    NO_PARENT,
    WHOLE_GPU,
    DeviceUuid,
    MiB,
    MilliCpu,
    NodeName,
)
from gpupack_placement.extended import NO_AMOUNTS, Amounts, require_amounts

MAX_DEVICE_MEMORY = MiB((1 << 31) - 1)
MAX_NUMA_NODE = (1 << 15) - 1
MAX_PODS = 1 << 30
"""The largest number of pods that the arrays take."""

USUAL_SPEED = 1000
MAX_SPEED = 10_000
"""Speeds are in per mille of the median of a GPU's model."""


class Health(IntEnum):
    """The health of a device, which limits its use.

    DEGRADED devices work, and get new work only if no HEALTHY one could take it. DRAINING devices
    get no new work, and their holders may continue; from FAILED devices their holders leave. In
    MAINTENANCE a device works, and an administrator wants no new work on it.
    """

    HEALTHY = 0
    DEGRADED = 1
    CORDONED = 2
    FAILED = 3
    MAINTENANCE = 4

    @property
    def takes_work(self) -> bool:
        """Whether the device may get new work."""
        return self <= Health.DEGRADED


class Effect(StrEnum):
    """The effect of a taint on pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """A mark on a node that keeps pods away."""

    key: str
    value: str = ""
    effect: Effect = Effect.NO_SCHEDULE

    def __post_init__(self) -> None:
        if not self.key:
            raise InvalidInventory("a taint needs a key")


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one MIG slice of a GPU.

    A slice has a `profile` such as "1g.10gb" and the UUID of its `parent`; both are empty for a
    GPU. It is held wholly or not at all, by a pod that requests its profile: it serves neither
    requests for whole GPUs nor shares, and no GPU serves a request for slices. The inventory lists
    a GPU that is cut by its slices only. How GPUs are cut is not decided here.

    `clique` names the NVLink clique within the node; None: no NVLink. Cliques that span nodes are
    not modelled. `index` is the order in which devices of a node are given out. `max_shares`:
    maximum number of shares of a GPU at a time, however small; a slice has none. `limits`: whether
    the percent and memory of its shares are enforced.

    `speed`: measured speed in per mille of the median of its model; without a measurement the
    median.

    `resource` is the resource name by which the device is requested: it serves only requests with
    that name. Devices of one node may have different ones.
    """

    uuid: DeviceUuid
    index: int
    model: str
    memory: MiB
    numa_node: int | None = None
    clique: int | None = None
    health: Health = Health.HEALTHY
    max_shares: int = WHOLE_GPU
    profile: str = ""
    parent: DeviceUuid = NO_PARENT
    resource: str = ""
    limits: bool = False
    speed: int = USUAL_SPEED

    def __post_init__(self) -> None:
        if not self.uuid or not self.model:
            raise InvalidInventory(f"device {self.index}: uuid and model must not be empty")
        if self.index < 0:
            raise InvalidInventory(f"device {self.uuid}: index {self.index} is negative")
        if self.memory <= 0:
            raise InvalidInventory(f"device {self.uuid}: memory {self.memory} MiB is not positive")
        if self.memory > MAX_DEVICE_MEMORY:
            raise InvalidInventory(
                f"device {self.uuid}: memory {self.memory} MiB is above {MAX_DEVICE_MEMORY}"
            )
        if self.numa_node is not None and not 0 <= self.numa_node <= MAX_NUMA_NODE:
            raise InvalidInventory(
                f"device {self.uuid}: NUMA node {self.numa_node} is not in 0..{MAX_NUMA_NODE}"
            )
        if self.max_shares < 0:
            raise InvalidInventory(f"device {self.uuid}: {self.max_shares} shares is negative")
        if not 1 <= self.speed <= MAX_SPEED:
            raise InvalidInventory(
                f"device {self.uuid}: speed {self.speed} is not in 1..{MAX_SPEED}"
            )
        if bool(self.profile) != bool(self.parent):
            raise InvalidInventory(f"device {self.uuid}: a MIG slice has a profile and a parent")
        if self.parent == self.uuid:
            raise InvalidInventory(f"device {self.uuid}: it is its own parent")

    @property
    def is_slice(self) -> bool:
        """Whether it is a MIG slice."""
        return bool(self.profile)


@dataclass(frozen=True, slots=True)
class Node:
    """A node with what pods may use of it: amounts are allocatable, not free.

    `pods`: maximum number of pods at a time, whatever they request; None: no limit. `extended`:
    resources that have no field here, by name (extended.py).
    """

    name: NodeName
    devices: tuple[Device, ...] = ()
    cpu: MilliCpu = NO_CPU
    memory: MiB = NO_MEMORY
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    cordoned: bool = False
    pods: int | None = None
    extended: Amounts = NO_AMOUNTS

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidInventory("a node needs a name")
        if self.cpu < 0 or self.memory < 0:
            raise InvalidInventory(f"node {self.name}: negative CPU or memory")
        if self.pods is not None and not 0 <= self.pods <= MAX_PODS:
            raise InvalidInventory(f"node {self.name}: {self.pods} pods is not in 0..{MAX_PODS}")
        if len({device.uuid for device in self.devices}) < len(self.devices):
            raise InvalidInventory(f"node {self.name}: two devices have the same uuid")
        if len({device.index for device in self.devices}) < len(self.devices):
            raise InvalidInventory(f"node {self.name}: two devices have the same index")
        require_amounts(self.extended, of=f"node {self.name}", error=InvalidInventory)
        self._check_slices()

    @property
    def resources(self) -> tuple[str, ...]:
        """Resource names of the node's devices, each once, in alphabetical order."""
        return tuple(sorted({device.resource for device in self.devices}))

    def _check_slices(self) -> None:
        parents = {device.parent for device in self.devices}
        for device in self.devices:
            if device.uuid in parents:
                raise InvalidInventory(
                    f"node {self.name}: {device.uuid} is cut into slices; list these alone"
                )
