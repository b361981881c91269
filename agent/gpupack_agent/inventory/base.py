# SPDX-License-Identifier: Apache-2.0
"""The interface between the agent and whatever knows the GPUs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from gpupack_agent.inventory.facts import GpuFacts
from gpupack_agent.inventory.layout import MigGpu, Place
from gpupack_crds.gpunode import GpuDevice


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """What one scan found."""

    devices: tuple[GpuDevice, ...]
    driver_version: str = ""
    cuda_version: str = ""
    stale_since: str | None = None
    """Since when the GPUs could not be looked at; what is said of them is from before."""
    busy: Mapping[str, bool] = dataclasses.field(default_factory=dict, compare=False)
    """Whether anything ran on a GPU since the last scan, by UUID; a missing one does not tell."""
    facts: tuple[GpuFacts, ...] = dataclasses.field(default=(), compare=False)
    """What the driver tells of each GPU, which changes from scan to scan."""
    minors: Mapping[str, int] = dataclasses.field(default_factory=dict, compare=False)
    """Of each GPU's device node, by UUID; a missing one is not told. Of a MIG slice its GPU's."""
    instances: Mapping[str, tuple[int, int]] = dataclasses.field(
        default_factory=dict, compare=False
    )
    """Of each MIG slice the numbers of its GPU instance and its compute instance, by UUID."""
    mig_gpus: tuple[MigGpu, ...] = ()
    """GPUs in MIG mode, cut or not."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount of a file or folder of the host."""

    host_path: str
    container_path: str
    writable: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Injection:
    """What a container needs to use some devices, besides being told which they are."""

    device_nodes: tuple[str, ...] = ()
    """As the container sees them."""
    host_nodes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Where the host has those of them that are elsewhere there."""
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What its libraries read to find the driver."""


class Inventory(Protocol):
    """A source of GPUs. `injection` reads files: call it from a thread."""

    async def scan(self) -> Findings:
        """List the GPUs as they are now; raises InventoryUnavailable."""

    def injection(self, uuids: Sequence[str]) -> Injection:
        """Say what makes these devices usable in a container; raises InventoryUnavailable."""

    def forget(self) -> None:
        """Let no error of the past count any more."""

    async def cut(self, uuid: str, places: Sequence[Place]) -> None:
        """Give a GPU in MIG mode these slices instead of those that it has.

        Whoever holds one of those loses it: nobody must.

        Raises:
            InventoryUnavailable: the driver does not, or not in full; the next scan says how the
                GPU is cut.
        """

    async def changed(self) -> None:
        """Return when a scan may find something new."""

    async def close(self) -> None:
        """It is asked no more."""
