# SPDX-License-Identifier: Apache-2.0
"""What the GPUNode of this node should say, gathered from those who know a part of it."""

import dataclasses

import msgspec

from gpupack_agent import __version__, holders
from gpupack_agent.inventory.base import Findings
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.observer import Observer
from gpupack_agent.prestart import NodeState
from gpupack_agent.usage import Usage, usage
from gpupack_crds.gpunode import GpuHolder, GpuNodeStatus

MOST_HOLDERS = 1024
"""As many as GPUNode takes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Whom to ask."""

    node: NodeState
    node_mode: NodeMode
    observer: Observer

    def status(self, recorded: GpuNodeStatus) -> GpuNodeStatus:
        """Describe the node as it is now, without the moment, so that equal states are equal.

        Args:
            recorded: what GPUNode says. Its holders stay until it is known who holds what: a new
                agent must not take back what the last one reported.
        """
        held = self._holders()
        described = describe(
            self.node.known_devices.findings,
            self.node_mode,
            recorded.holders if held is None else held[:MOST_HOLDERS],
        )
        return msgspec.structs.replace(
            described, boot_id=self.node.known_devices.boot_id, **self._usage(described, recorded)
        )

    def recall(self, recorded: GpuNodeStatus) -> None:
        """Take in what an earlier agent wrote."""
        self.node.known_devices.recall(recorded)
        self.node_mode.recall(recorded)

    def forget(self) -> None:
        """GPUNode was deleted: what it alone knew does not count any more."""
        self.node.known_devices.forget()
        self.node_mode.forget()

    def _usage(self, described: GpuNodeStatus, recorded: GpuNodeStatus) -> Usage:
        if not self.node.pods.synced:
            return usage_in(recorded)
        pods = self.node.pods.by_uid.values()
        return usage(described.devices, pods, described.holders)

    def _holders(self) -> tuple[GpuHolder, ...] | None:
        if self.node_mode.mode == "observed":
            return self.observer.holders
        return holders.lingering(self.node.observe()) if self.node.pods.synced else None


def usage_in(status: GpuNodeStatus) -> Usage:
    """What a status says of the use of its GPUs."""
    return Usage(free=status.free, shared=status.shared, held=status.held, held_by=status.held_by)


def describe(
    findings: Findings, node_mode: NodeMode, held: tuple[GpuHolder, ...] = ()
) -> GpuNodeStatus:
    """Put a status together."""
    devices = tuple(
        msgspec.structs.replace(each, resource=node_mode.resource_of(each.uuid))
        for each in findings.devices
    )
    return GpuNodeStatus(
        mode=node_mode.mode,
        resources=node_mode.resources,
        devices=devices,
        holders=held,
        gpus=len(devices),
        healthy=sum(device.health == "Healthy" for device in devices),
        model=", ".join(sorted({device.model for device in devices})),
        simulated=any(device.simulated for device in devices),
        driver_version=findings.driver_version,
        cuda_version=findings.cuda_version,
        agent_version=__version__,
    )
