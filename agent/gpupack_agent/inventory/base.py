# SPDX-License-Identifier: Apache-2.0
"""The interface between the agent and a source of GPUs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from gpupack_agent.inventory.facts import GpuFacts
from gpupack_agent.inventory.layout import MigGpu, Place
from gpupack_crds.gpunode import GpuDevice


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """The result of one scan."""

    devices: tuple[GpuDevice, ...]
    driver_version: str = ""
    cuda_version: str = ""
    stale_since: str | None = None
    """The time since when no scan has succeeded; the other fields are from before it."""
    busy: Mapping[str, bool] = dataclasses.field(default_factory=dict, compare=False)
    """Whether anything ran on a GPU since the last scan, by UUID; missing: not known."""
    facts: tuple[GpuFacts, ...] = dataclasses.field(default=(), compare=False)
    """The driver's facts about each GPU, which change from scan to scan."""
    xids: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict, compare=False)
    """The XIDs that each GPU raised, by its UUID, whatever they mean."""
    minors: Mapping[str, int] = dataclasses.field(default_factory=dict, compare=False)
    """Minor number of each GPU's device node, by UUID; missing: not known. A MIG slice has that of
    its GPU."""
    instances: Mapping[str, tuple[int, int]] = dataclasses.field(
        default_factory=dict, compare=False
    )
    """Numbers of the GPU instance and the compute instance of each MIG slice, by UUID."""
    mig_gpus: tuple[MigGpu, ...] = ()
    """GPUs in MIG mode, with slices or without."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount of a file or folder of the host."""

    host_path: str
    container_path: str
    writable: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Injection:
    """The device nodes, mounts and variables that a container needs to use some devices."""

    device_nodes: tuple[str, ...] = ()
    """Paths of the device nodes in the container."""
    host_nodes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The host's path of each device node that has another path there, by its container path."""
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Variables that its libraries read, such as the path of the driver."""


class Inventory(Protocol):
    """A source of GPUs. `injection` reads files, so callers use a thread."""

    async def scan(self) -> Findings:
        """List the GPUs as they are now; raises InventoryUnavailable."""

    def injection(self, uuids: Sequence[str]) -> Injection:
        """Return what a container needs to use these devices; raises InventoryUnavailable."""

    def forget(self) -> None:
        """Forget all past errors."""

    async def partition(self, uuid: str, places: Sequence[Place]) -> None:
        """Replace the slices of a GPU in MIG mode by these.

        No pod may hold one of its slices, because the slice is destroyed.

        Raises:
            InventoryUnavailable: the driver did not do it, or only in part; the next scan shows the
                slices.
        """

    async def changed(self) -> None:
        """Return when a scan may find something new."""

    async def close(self) -> None:
        """Release all resources; no other method may be called afterwards."""
