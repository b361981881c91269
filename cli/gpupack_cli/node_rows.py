# SPDX-License-Identifier: Apache-2.0
"""Nodes with GPUs, and single GPUs, as rows: of GPUNodes, or of the REST API, which knows less."""

from typing import Any, Final

import msgspec

from gpupack_cli.answers import Device, Node
from gpupack_cli.figures import count, mebibytes, memory
from gpupack_cli.output import Column
from gpupack_crds import names
from gpupack_crds.gpunode import GpuDevice, Maintenance, counted
from gpupack_crds.kinds import GpuNode

MAINTENANCE: Final = "Maintenance"
WHOLE: Final = 100.0
"""Percent of a GPU."""

NODE_COLUMNS: Final = (
    Column("name"),
    Column("model"),
    Column("gpus", right=True),
    Column("free", right=True),
    Column("held", right=True),
    Column("shared", right=True),
    Column("healthy", right=True, least_width=80),
    Column("simulated", least_width=100),
    Column("mode", wide=True),
    Column("resources", wide=True),
    Column("driver", wide=True),
    Column("agent", wide=True),
    Column("maintenance", least_width=90, rest=True),
)
GPU_COLUMNS: Final = (
    Column("index", right=True),
    Column("uuid"),
    Column("model"),
    Column("memory", right=True, least_width=90),
    Column("state"),
    Column("holder"),
    Column("why", least_width=100, rest=True),
    Column("since", least_width=160),
    Column("clique", right=True, wide=True),
    Column("pci", wide=True),
)


class NodeRow(msgspec.Struct, frozen=True):
    """A node in short; null: it is not told."""

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
    def of(cls, node: GpuNode) -> "NodeRow":
        """Of an object."""
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
            maintenance="; ".join(map(_told, node.spec.maintenance)),
            held_by=status.held_by,
            resources=counted(each.resource for each in status.devices),
        )

    @classmethod
    def of_answer(cls, node: Node) -> "NodeRow":
        """Of the REST API's: it tells who is out of service, and no reason."""
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
        """In the order of NODE_COLUMNS."""
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
    """A GPU in short; `state` is its health, or Maintenance or what was decided about it.

    Null: it is not told.
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
    def of(cls, node: GpuNode, device: GpuDevice) -> "GpuRow":
        """Of a GPU of a node: what keeps new work away goes before what is merely known."""
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
    def of_answer(cls, device: Device) -> "GpuRow":
        """Of the REST API's."""
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
        """In the order of GPU_COLUMNS."""
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
    """The GPUs of one node, and the pods that hold any; empty: nobody, or it is not told."""

    gpus: list[GpuRow]
    held_by: str = ""

    @classmethod
    def of(cls, node: GpuNode) -> "NodeGpus":
        """Of an object."""
        return cls([GpuRow.of(node, each) for each in node.status.devices], node.status.held_by)

    @classmethod
    def of_answer(cls, node: Node) -> "NodeGpus":
        """Of the REST API's."""
        return cls([GpuRow.of_answer(each) for each in node.devices])


def _resource(device: Device) -> str:
    """The REST API names it where another device plugin hands the GPU out."""
    ours = names.mig_resource(device.mig_profile) if device.mig_profile else names.GPU
    return device.resource or ours


def _told(entry: Maintenance) -> str:
    """An entry in a few words."""
    which = f"{len(entry.gpus)} GPUs" if len(entry.gpus) > 1 else "1 GPU" if entry.gpus else "all"
    drain = "" if entry.drain == "Never" else f", drains {entry.drain}"
    return f"{entry.reason} ({which}{drain})"
