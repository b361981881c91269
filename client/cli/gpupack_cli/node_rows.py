# SPDX-License-Identifier: Apache-2.0
"""Rows of nodes and of GPUs: from GPUNodes, or from the REST API, which has less data."""

from typing import Any, Final

import msgspec

from gpupack_cli.figures import count, mebibytes, memory
from gpupack_cli.output import Column
from gpupack_crds import names
from gpupack_crds.gpunode import GpuDevice, Maintenance, counted
from gpupack_crds.kinds import GpuNode
from gpupack_restapi.nodes import DeviceView, NodeView

MAINTENANCE: Final = "Maintenance"
WHOLE: Final = 100.0
"""Percent of a whole GPU."""

NODE_COLUMNS: Final = (
    Column("name"),
    Column("model"),
    Column("gpus", right=True),
    Column("free", right=True),
    Column("held", right=True),
    Column("shared", right=True),
    Column("healthy", right=True, min_width=80),
    Column("simulated", min_width=100),
    Column("mode", wide=True),
    Column("resources", wide=True),
    Column("driver", wide=True),
    Column("agent", wide=True),
    Column("maintenance", min_width=90, rest=True),
)
GPU_COLUMNS: Final = (
    Column("index", right=True),
    Column("uuid"),
    Column("model"),
    Column("memory", right=True, min_width=90),
    Column("state"),
    Column("holder"),
    Column("why", min_width=100, rest=True),
    Column("since", min_width=160),
    Column("clique", right=True, wide=True),
    Column("pci", wide=True),
)


class NodeRow(msgspec.Struct, frozen=True):
    """A summary of a node; null: not available."""

    name: str
    model: str
    gpus: int
    free: int
    held: int
    shared: int
    healthy: int
    mode: str | None
    simulated: bool
    driver_version: str | None
    agent_version: str | None
    maintenance: str
    held_by: str | None
    resources: str

    @classmethod
    def from_object(cls, node: GpuNode) -> "NodeRow":
        """Return the row of an object."""
        status = node.status
        return cls(
            name=node.metadata.name,
            model=status.model,
            gpus=status.gpus,
            free=status.free,
            held=status.held,
            shared=status.shared,
            healthy=status.healthy,
            mode=status.mode,
            simulated=status.simulated,
            driver_version=status.driver_version,
            agent_version=status.agent_version,
            maintenance="; ".join(map(_maintenance_text, node.spec.maintenance)),
            held_by=status.held_by,
            resources=counted(each.resource for each in status.devices),
        )

    @classmethod
    def from_rest(cls, node: NodeView) -> "NodeRow":
        """Return the row of a node in the REST API's answer, which has no maintenance reasons."""
        given = [each.given_percent for each in node.devices]
        out = sum(each.health == MAINTENANCE for each in node.devices)
        return cls(
            name=node.node_name,
            model=node.gpu_type,
            gpus=node.total_gpus,
            free=node.available_gpus,
            held=sum(each >= WHOLE for each in given),
            shared=sum(0 < each < WHOLE for each in given),
            healthy=sum(each.health == "Healthy" for each in node.devices),
            mode=None,
            simulated=any(each.simulated for each in node.devices),
            driver_version=None,
            agent_version=None,
            maintenance="" if not out else "all" if out == len(given) else count(out, "GPU"),
            held_by=None,
            resources=counted(map(_resource, node.devices)),
        )

    def cells(self) -> tuple[Any, ...]:
        """Return the cells in the order of NODE_COLUMNS."""
        return (
            self.name,
            self.model,
            self.gpus,
            self.free,
            self.held,
            self.shared,
            self.healthy,
            "simulated" if self.simulated else "",
            self.mode,
            self.resources,
            self.driver_version,
            self.agent_version,
            self.maintenance,
        )


class GpuRow(msgspec.Struct, frozen=True):
    """A summary of a GPU; `state` is its health, Maintenance, or the phase of its quarantine.

    Null: not available.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    state: str
    why: str | None
    since: str | None
    nvlink_clique: int | None
    pci_bus_id: str | None
    holders: tuple[str, ...] | None = None

    @classmethod
    def from_object(cls, node: GpuNode, device: GpuDevice) -> "GpuRow":
        """Return the row of a node's GPU; a state that keeps new work away has precedence."""
        state: str = device.health
        why, since = device.cause, device.since
        for entry in node.spec.quarantine:
            if entry.gpu == device.uuid:
                state, why, since = entry.phase, entry.cause, entry.since
        reasons = [
            each.reason
            for each in node.spec.maintenance
            if each.covers(device.uuid, node.status.mode)
        ]
        if reasons:
            state, why, since = MAINTENANCE, "; ".join(reasons), None
        return cls(
            index=device.index,
            uuid=device.uuid,
            model=device.model,
            memory_mib=device.memory_mib,
            state=state,
            why=why,
            since=since or "",
            nvlink_clique=device.nvlink_clique,
            pci_bus_id=device.pci_bus_id,
        )

    @classmethod
    def from_rest(cls, device: DeviceView) -> "GpuRow":
        """Return the row of a GPU in the REST API's answer."""
        return cls(
            index=device.index,
            uuid=device.uuid,
            model=device.gpu_type,
            memory_mib=mebibytes(device.memory_gb),
            state=device.health,
            why=None,
            since=None,
            nvlink_clique=None,
            pci_bus_id=None,
        )

    def cells(self) -> tuple[Any, ...]:
        """Return the cells in the order of GPU_COLUMNS."""
        return (
            self.index,
            self.uuid,
            self.model,
            memory(self.memory_mib),
            self.state,
            None if self.holders is None else ", ".join(self.holders),
            self.why,
            self.since,
            self.nvlink_clique,
            self.pci_bus_id,
        )


class NodeGpus(msgspec.Struct, frozen=True):
    """The GPUs of one node, and the pods that hold any; empty: none, or not available."""

    gpus: list[GpuRow]
    held_by: str = ""

    @classmethod
    def from_object(cls, node: GpuNode) -> "NodeGpus":
        """Return the GPUs of an object."""
        return cls(
            [GpuRow.from_object(node, each) for each in node.status.devices], node.status.held_by
        )

    @classmethod
    def from_rest(cls, node: NodeView) -> "NodeGpus":
        """Return the GPUs in the REST API's answer."""
        return cls([GpuRow.from_rest(each) for each in node.devices])


def _resource(device: DeviceView) -> str:
    """Return the resource; the REST API names only those of other device plugins."""
    ours = names.mig_resource(device.mig_profile) if device.mig_profile else names.GPU
    return device.resource or ours


def _maintenance_text(entry: Maintenance) -> str:
    """Return an entry in a few words."""
    which = f"{len(entry.gpus)} GPUs" if len(entry.gpus) > 1 else "1 GPU" if entry.gpus else "all"
    drain = "" if entry.drain == "Never" else f", drains {entry.drain}"
    return f"{entry.reason} ({which}{drain})"
