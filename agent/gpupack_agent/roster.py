# SPDX-License-Identifier: Apache-2.0
"""All GPUs that this node has or had.

A GPU that a scan no longer finds is not forgotten: pods may hold it, and its owner must hear of it.
It stays, as Failed, until the GPUNode is deleted. That outlives the agent for real GPUs, through
GPUNode itself; simulated ones are forgotten at a restart, since taking one out of the file is how
it is removed. A MIG slice is forgotten at once: nobody is handed any, and a GPU that is cut anew
now and then would leave more of them behind than GPUNode takes.
"""

import asyncio
import dataclasses
from collections.abc import Iterable

import msgspec

from gpupack_agent.inventory.base import Findings
from gpupack_crds.gpunode import GpuDevice

GONE = "the driver no longer finds this GPU; if it was taken out, delete this GPUNode"


def merge(known: Iterable[GpuDevice], seen: Iterable[GpuDevice]) -> tuple[GpuDevice, ...]:
    """Bring what was known up to date with what a scan saw, in order of index."""
    merged = {device.uuid: _gone(device) for device in known if not device.mig_parent}
    merged |= {device.uuid: device for device in seen}
    return tuple(sorted(merged.values(), key=lambda device: (device.index, device.uuid)))


def remembered(recorded: Iterable[GpuDevice]) -> tuple[GpuDevice, ...]:
    """What a new agent takes over from the GPUNode that the last one wrote."""
    return tuple(device for device in recorded if not device.simulated)


def _gone(device: GpuDevice) -> GpuDevice:
    return msgspec.structs.replace(device, health="Failed", cause=GONE)


class Roster:
    """The node's GPUs at this moment; tells those who wait when they change."""

    def __init__(self) -> None:
        self.findings = Findings(devices=())
        self._changed = asyncio.Event()

    @property
    def devices(self) -> dict[str, GpuDevice]:
        """The GPUs by UUID."""
        return {device.uuid: device for device in self.findings.devices}

    def update(self, found: Findings) -> None:
        """Take in a scan."""
        devices = merge(self.findings.devices, found.devices)
        self._set(dataclasses.replace(found, devices=devices))

    def recall(self, recorded: Iterable[GpuDevice]) -> None:
        """Take in what GPUNode recorded before this agent started."""
        devices = merge(remembered(recorded), self.findings.devices)
        self._set(dataclasses.replace(self.findings, devices=devices))

    def forget_gone(self) -> None:
        """Keep only what the last scan found."""
        found = tuple(device for device in self.findings.devices if device.cause != GONE)
        self._set(dataclasses.replace(self.findings, devices=found))

    @property
    def next_change(self) -> asyncio.Event:
        """Set by the next change after this moment; take it before reading `findings`."""
        return self._changed

    def _set(self, findings: Findings) -> None:
        if findings == self.findings:
            return
        self.findings = findings
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
