# SPDX-License-Identifier: Apache-2.0
"""The placement of a worker: a node, devices, CPU, memory and other resources."""

from dataclasses import dataclass

from gpupack_devices.units import (
    NO_CPU,
    NO_MEMORY,
    WHOLE_GPU,
    DeviceUuid,
    MiB,
    MilliCpu,
    MilliGpu,
    NodeName,
)
from gpupack_placement.errors import InvalidPlacement
from gpupack_placement.extended import NO_AMOUNTS, Amounts, require_amounts


@dataclass(frozen=True, slots=True)
class Grant:
    """One device, wholly (1000 milli and all its memory) or in part; `group` as in Share."""

    uuid: DeviceUuid
    milli: MilliGpu
    memory: MiB
    group: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.milli <= WHOLE_GPU:
            raise InvalidPlacement(f"{self.uuid}: {self.milli} milli-GPU is not in 1..1000")
        if self.memory < 0:
            raise InvalidPlacement(f"{self.uuid}: {self.memory} MiB is negative")

    @property
    def shares(self) -> int:
        """Number of the device's shares that it uses: 1, or 0 for the whole device."""
        return int(self.milli < WHOLE_GPU)


@dataclass(frozen=True, slots=True)
class Placement:
    """The node and the resources of one worker.

    `devices` empty: a CPU-only pod. `pods`: 1 if the placement counts as a pod of its node, else 0.
    """

    node: NodeName
    devices: tuple[Grant, ...] = ()
    cpu: MilliCpu = NO_CPU
    memory: MiB = NO_MEMORY
    pods: int = 1
    extended: Amounts = NO_AMOUNTS

    def __post_init__(self) -> None:
        if len({grant.uuid for grant in self.devices}) < len(self.devices):
            raise InvalidPlacement(f"{self.node}: a device is granted twice in one placement")
        if self.cpu < 0 or self.memory < 0:
            raise InvalidPlacement(f"{self.node}: negative CPU or memory")
        if self.pods not in {0, 1}:
            raise InvalidPlacement(f"{self.node}: one placement is not {self.pods} pods")
        if self.extended:
            require_amounts(self.extended, of=self.node, error=InvalidPlacement)
