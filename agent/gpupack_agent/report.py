# SPDX-License-Identifier: Apache-2.0
"""The status that the GPUNode of this node should have, gathered from its sources."""

import dataclasses
import datetime as dt
from collections.abc import Callable

import msgspec

from gpupack_agent import holders
from gpupack_agent.idleness import Idleness
from gpupack_agent.inventory.base import Findings
from gpupack_agent.layouts import Layouts
from gpupack_agent.mps.folder import MpsFolder
from gpupack_agent.node_mode import NodeMode
from gpupack_agent.observer import Observer
from gpupack_agent.outages import Outage, with_condition
from gpupack_agent.prestart import NodeState
from gpupack_agent.usage import Usage, compute_usage
from gpupack_crds import names
from gpupack_crds.condition import Condition
from gpupack_crds.gpunode import (
    INVENTORY_UNAVAILABLE,
    MAX_GPUS,
    POD_CGROUPS_MISSING,
    GpuDevice,
    GpuHolder,
    GpuNodeStatus,
    counted,
)
from gpupack_kubeclient import __version__

MAX_HOLDERS = 1024
"""The largest number of holders that GPUNode accepts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """The sources of a GPUNode's status."""

    node: NodeState
    node_mode: NodeMode
    observer: Observer
    layouts: Layouts
    idleness: Idleness = dataclasses.field(default_factory=lambda: Idleness(quiet_seconds=60))
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    mps: MpsFolder | None = None

    def status(self, recorded: GpuNodeStatus) -> GpuNodeStatus:
        """Describe the node as it is now, without the time, so that equal states compare equal.

        Args:
            recorded: GPUNode's present status. Its holders stay until the agent knows the holders:
                a new agent must not withdraw what the last one reported.
        """
        held = self._holders()
        described = describe(
            self.node.known_devices.findings,
            self.node_mode,
            recorded.holders if held is None else held[:MAX_HOLDERS],
            foreign=self.observer.foreign.devices,
        )
        devices = self.idleness.update(
            described.devices,
            self.node.known_devices.busy,
            self.node.pods.by_uid.values(),
            self.now(),
        )
        return msgspec.structs.replace(
            described,
            devices=tuple(map(self._with_limits, devices)),
            boot_id=self.node.known_devices.boot_id,
            measured=recorded.measured,
            all_reduce=recorded.all_reduce,
            mig_gpus=self.layouts.status(),
            conditions=self._conditions(recorded.conditions),
            **self._usage(described, recorded),
        )

    def _conditions(self, recorded: tuple[Condition, ...]) -> tuple[Condition, ...]:
        now, problem = self.now(), self.node.cgroups.problem
        missing = Outage("PodCgroupsNotFound", problem, now) if problem else None
        conditions = with_condition(
            recorded, INVENTORY_UNAVAILABLE, self.node.known_devices.outage, now
        )
        return with_condition(conditions, POD_CGROUPS_MISSING, missing, now)

    def _with_limits(self, device: GpuDevice) -> GpuDevice:
        """Set what limits shares of a real GPU; MIG slices have no shares."""
        if device.simulated or device.mig_parent or self.mps is None or not self.mps.is_served():
            return device
        if self.observer.foreign.is_foreign(device):
            return device
        return msgspec.structs.replace(device, limits="MPS")

    def restore(self, recorded: GpuNodeStatus) -> None:
        """Restore the state that an earlier agent wrote."""
        is_foreign = self.observer.foreign.is_foreign
        ours = tuple(device for device in recorded.devices if not is_foreign(device))
        self.node.known_devices.restore(msgspec.structs.replace(recorded, devices=ours))
        self.node_mode.restore(recorded)

    def forget(self) -> None:
        """Drop the state that only the deleted GPUNode recorded."""
        self.node.known_devices.forget()
        self.node_mode.forget()

    def _usage(self, described: GpuNodeStatus, recorded: GpuNodeStatus) -> Usage:
        if not self.node.pods.synced:
            return usage_in(recorded)
        pods = self.node.pods.by_uid.values()
        return compute_usage(described.devices, pods, described.holders)

    def _holders(self) -> tuple[GpuHolder, ...] | None:
        if self.node_mode.mode == "observed":
            return self.observer.holders
        return holders.terminating_holders(self.node.observe()) if self.node.pods.synced else None


def usage_in(status: GpuNodeStatus) -> Usage:
    """Return the use of GPUs that a status shows."""
    return Usage(free=status.free, shared=status.shared, held=status.held, held_by=status.held_by)


def _resource(device: GpuDevice, node_mode: NodeMode) -> str:
    """Return the resource of a device.

    On an owned node a slice has the resource of its profile. Otherwise the node's mode decides.
    """
    if device.mig_profile and node_mode.mode == "owned":
        return names.mig_resource(device.mig_profile)
    return node_mode.resource_of(device.uuid)


def describe(
    findings: Findings,
    node_mode: NodeMode,
    held: tuple[GpuHolder, ...] = (),
    *,
    foreign: tuple[GpuDevice, ...] = (),
) -> GpuNodeStatus:
    """Build a status."""
    shown = {
        each.uuid: msgspec.structs.replace(each, resource=_resource(each, node_mode))
        for each in findings.devices
    }
    others = (each for each in foreign if each.uuid not in shown)
    devices = (*shown.values(), *others)[:MAX_GPUS]
    return GpuNodeStatus(
        mode=node_mode.mode,
        resources=node_mode.resources,
        resource_counts=counted(each.resource for each in devices),
        devices=devices,
        holders=held,
        gpus=len(devices),
        healthy=sum(device.health == "Healthy" for device in devices),
        model=", ".join(sorted({device.model for device in devices})),
        simulated=any(device.simulated for device in devices),
        stale_since=findings.stale_since,
        driver_version=findings.driver_version,
        cuda_version=findings.cuda_version,
        agent_version=__version__,
    )
