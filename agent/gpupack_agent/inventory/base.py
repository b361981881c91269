# SPDX-License-Identifier: Apache-2.0
"""The interface between the agent and whatever knows the GPUs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from gpupack_crds.gpunode import GpuDevice


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """What one scan found."""

    devices: tuple[GpuDevice, ...]
    driver_version: str = ""
    cuda_version: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """A read-only bind mount of one host file."""

    host_path: str
    container_path: str


@dataclasses.dataclass(frozen=True, slots=True)
class Injection:
    """What a container needs to use some devices, besides being told which they are."""

    device_nodes: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What its libraries read to find the driver."""


class Inventory(Protocol):
    """A source of GPUs. `scan` and `injection` may block: call them from a thread."""

    def scan(self) -> Findings:
        """List the GPUs as they are now; raises InventoryUnavailable."""

    def injection(self, uuids: Sequence[str]) -> Injection:
        """Say what makes these devices usable in a container; raises InventoryUnavailable."""

    def forget(self) -> None:
        """Let no error of the past count any more."""

    async def changed(self) -> None:
        """Return when a scan may find something new."""
