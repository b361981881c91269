# SPDX-License-Identifier: Apache-2.0
"""The inventory: nodes and their devices, as the agent and Kubernetes report them. Frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from gpupack_core.errors import InvalidInventory
from gpupack_core.units import NO_CPU, NO_MEMORY, WHOLE_GPU, DeviceUuid, MiB, MilliCpu, NodeName


class Health(IntEnum):
    """Only HEALTHY devices get new work.

    DEGRADED differs from FAILED for those who hold the device: they may go on. Giving it out
    last was rejected: a gang runs at the speed of its slowest GPU.
    """

    HEALTHY = 0
    DEGRADED = 1
    FAILED = 2


class Effect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

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
    """One GPU (or MIG slice).

    `clique` names the NVLink clique within the node; None: no NVLink. Cliques that span nodes
    are not modelled. `index` is the order in which devices of a node are given out. `max_shares`:
    how many shares of it there can be at a time, however small.
    """

    uuid: DeviceUuid
    index: int
    model: str
    memory: MiB
    numa_node: int | None = None
    clique: int | None = None
    health: Health = Health.HEALTHY
    max_shares: int = WHOLE_GPU

    def __post_init__(self) -> None:
        if not self.uuid or not self.model:
            raise InvalidInventory(f"device {self.index}: uuid and model must not be empty")
        if self.index < 0:
            raise InvalidInventory(f"device {self.uuid}: index {self.index} is negative")
        if self.memory <= 0:
            raise InvalidInventory(f"device {self.uuid}: memory {self.memory} MiB is not positive")
        if self.max_shares < 0:
            raise InvalidInventory(f"device {self.uuid}: {self.max_shares} shares is negative")


@dataclass(frozen=True, slots=True)
class Node:
    """A node with what pods may use of it: `cpu` and `memory` are allocatable, not free.

    `resource` is the name by which its GPUs are asked for; it takes only requests of that name.
    """

    name: NodeName
    devices: tuple[Device, ...] = ()
    cpu: MilliCpu = NO_CPU
    memory: MiB = NO_MEMORY
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    cordoned: bool = False
    resource: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidInventory("a node needs a name")
        if self.cpu < 0 or self.memory < 0:
            raise InvalidInventory(f"node {self.name}: negative CPU or memory")
        if len({device.uuid for device in self.devices}) < len(self.devices):
            raise InvalidInventory(f"node {self.name}: two devices have the same uuid")
        if len({device.index for device in self.devices}) < len(self.devices):
            raise InvalidInventory(f"node {self.name}: two devices have the same index")
