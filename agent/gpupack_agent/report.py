# SPDX-License-Identifier: Apache-2.0
"""What the GPUNode of this node should say, gathered from those who know a part of it."""

import dataclasses

from gpupack_agent import __version__, holders
from gpupack_agent.inventory.base import Findings
from gpupack_agent.observer import Observer
from gpupack_agent.prestart import Node
from gpupack_agent.tenure import Tenure
from gpupack_crds.gpunode import GpuHolder, GpuNodeStatus

MOST_HOLDERS = 1024
"""As many as GPUNode takes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Whom to ask."""

    node: Node
    tenure: Tenure
    observer: Observer

    def status(self, recorded: GpuNodeStatus) -> GpuNodeStatus:
        """Describe the node as it is now, without the moment, so that equal states are equal.

        Args:
            recorded: what GPUNode says. Its holders stay until it is known who holds what: a new
                agent must not take back what the last one reported.
        """
        held = self._holders()
        return describe(
            self.node.roster.findings,
            self.tenure,
            recorded.holders if held is None else held[:MOST_HOLDERS],
        )

    def recall(self, recorded: GpuNodeStatus) -> None:
        """Take in what an earlier agent wrote."""
        self.node.roster.recall(recorded.devices)
        self.tenure.recall(recorded)

    def forget(self) -> None:
        """GPUNode was deleted: what it alone knew does not count any more."""
        self.node.roster.forget_gone()
        self.tenure.forget()

    def _holders(self) -> tuple[GpuHolder, ...] | None:
        if self.tenure.mode == "observed":
            return self.observer.holders
        return holders.lingering(self.node.observe()) if self.node.pods.synced else None


def describe(findings: Findings, tenure: Tenure, held: tuple[GpuHolder, ...] = ()) -> GpuNodeStatus:
    """Put a status together."""
    devices = findings.devices
    return GpuNodeStatus(
        mode=tenure.mode,
        resource_name=tenure.resource,
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
