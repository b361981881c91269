# SPDX-License-Identifier: Apache-2.0
"""The free GPUs of this machine, computed from its holders, as one node of placement. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpupack.host.inventory import Inventory
from gpupack.host.record import Record, placement_of
from gpupack.training_config import PERCENT, TrainingGPUConfig
from gpupack_placement import (
    WHOLE_GPU,
    Cluster,
    Device,
    Grant,
    Holder,
    MiB,
    MilliGpu,
    Node,
    NodeName,
    Placement,
    Request,
    Share,
)

MILLI_PER_PERCENT: Final = WHOLE_GPU // PERCENT


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """This machine at one moment.

    Attributes:
        node: name of the machine.
        inventory: its GPUs.
        records: records of live processes, by ID.
        self_pid: PID of this process, whose own use of a GPU does not count.
    """

    node: NodeName
    inventory: Inventory
    records: Mapping[str, Record]
    self_pid: int

    def cluster(self) -> Cluster:
        """Return a cluster with all GPUs that are held, or used by processes with no allocation."""
        cluster = self.empty_cluster()
        for name, record in self.records.items():
            if record.kind == "holds":
                cluster.adopt(Holder(name), placement_of(record, self.node))
        for device in self.used_without_holder():
            grant = Grant(device.uuid, WHOLE_GPU, device.memory)
            cluster.adopt(Holder(f"used-{device.uuid}"), Placement(self.node, (grant,)))
        return cluster

    def empty_cluster(self) -> Cluster:
        """Return a cluster in which nothing is held or used."""
        return Cluster([Node(self.node, self.inventory.devices)])

    def used_without_holder(self) -> tuple[Device, ...]:
        """Return GPUs without a holder that a process uses.

        One example is a child that outlived its parent. On a GPU with a holder, other processes
        cannot be distinguished from the holder's children.
        """
        held = {each.uuid for record in self.records.values() for each in record.devices}
        return tuple(
            device
            for device in self.inventory.devices
            if device.uuid not in held and self._other_users(device)
        )

    def next_turn(self) -> int:
        """Return the turn after all waiting processes."""
        return 1 + max((each.turn for each in self.records.values()), default=0)

    def describe_other_users(self) -> str:
        """Return which processes use GPUs without an allocation, for a refusal; empty: none."""
        texts = (
            f"GPU {device.index} is used by process "
            f"{', '.join(map(str, sorted(self._other_users(device))))}, without an allocation"
            for device in self.used_without_holder()
        )
        return "; ".join(texts)

    def _other_users(self, device: Device) -> frozenset[int]:
        return self.inventory.users.get(device.uuid, frozenset()) - {self.self_pid}


def waiting_before(records: Mapping[str, Record], turn: int | None) -> dict[str, Record]:
    """Return the records that wait before this turn, by ID; None: before a process with no turn."""
    return {
        name: each
        for name, each in records.items()
        if each.kind == "waits" and (turn is None or each.turn < turn)
    }


def request_of(config: TrainingGPUConfig) -> Request:
    """Return the request for placement: whole GPUs, or a share of one."""
    models = (config.gpu_type,) if config.gpu_type else ()
    if config.is_share:
        milli = MilliGpu(config.percent * MILLI_PER_PERCENT)
        share = Share(milli, MiB(config.memory_mib))
        return Request(share=share, models=models)
    return Request(gpus=config.gpu_count, models=models, min_memory=MiB(config.memory_mib))


def request_text(config: TrainingGPUConfig) -> str:
    """Return the request as text for users: «2 GPUs of A100», «30% and 8 GB of a GPU»."""
    of = f" of {config.gpu_type}" if config.gpu_type else ""
    if config.is_share:
        return f"{config.percent}% and {config.memory_gb:g} GB of a GPU{of}"
    return f"{config.gpu_count} GPU{'s' if config.gpu_count > 1 else ''}{of}"
