# SPDX-License-Identifier: Apache-2.0
"""The backend `this-machine`, on top of the host's ledger."""

import datetime as dt
import threading
from collections.abc import Iterator
from typing import Final

from gpupack.allocation import Allocation
from gpupack.backend import Patience
from gpupack.errors import NothingHeld, Unsupported
from gpupack.host.inventory import Gpus
from gpupack.host.ledger import HeldPlacement, HostLedger, refusal_text
from gpupack.host.locked_file import LockedFile
from gpupack.host.snapshot import MILLI_PER_PERCENT, HostSnapshot
from gpupack.jobs import Jobs
from gpupack.training_config import PERCENT, TrainingGPUConfig, gigabytes
from gpupack.views import (
    AvailableNode,
    ClusterStatus,
    DeviceStatus,
    GPUResourceStatus,
    Utilization,
    Validation,
    WorkerGpus,
)
from gpupack_placement import Placement, Refusal, matches_model
from gpupack_restapi.allocations import Workload


class HostBackend:
    """The backend `this-machine`, which implements Backend for the GPUs of this machine."""

    name: Final = "this-machine"

    def __init__(self, ledger: HostLedger, gpus: Gpus) -> None:
        self._ledger, self._gpus = ledger, gpus
        self._held: dict[str, LockedFile] = {}
        self._changing = threading.Lock()

    @property
    def jobs(self) -> Jobs:
        """Refuse: GPUJobs are objects of a cluster."""
        raise Unsupported(
            "this machine has no GPUJobs: open the cluster's backend, by GPUPACK_SERVER or "
            "GPUPACK_BACKEND=cluster"
        )

    def status(self) -> ClusterStatus:
        """Return what is free and what is allocated on this machine."""
        snapshot = self._ledger.snapshot()
        node = _node_status(snapshot)
        memory = sum(each.memory_gb for each in node.devices)
        free = sum(each.free_memory_gb for each in node.devices)
        available = AvailableNode(
            node.node_name,
            node.gpu_type,
            node.available_gpus,
            node.memory_per_gpu,
            node.utilization,
        )
        return ClusterStatus(
            utilization=Utilization(node.utilization, _percent(memory - free, memory)),
            available_nodes=(available,) if node.available_gpus else (),
            total_nodes=1 if node.devices else 0,
            total_gpus=node.total_gpus,
            available_gpus=node.available_gpus,
            timestamp=dt.datetime.now(dt.UTC),
            simulated=node.simulated,
        )

    def nodes(self, *, gpu_type: str = "", min_memory_gb: float = 0) -> list[GPUResourceStatus]:
        """Return this machine, if it has such a GPU."""
        node = _node_status(self._ledger.snapshot())
        fits = any(
            each.memory_gb >= min_memory_gb
            and (not gpu_type or matches_model(gpu_type, each.gpu_type))
            for each in node.devices
        )
        return [node] if fits else []

    def validate(self, config: TrainingGPUConfig) -> Validation:
        """Return whether the request can fit, and whether it fits now; ignore waiting processes."""
        snapshot = self._ledger.snapshot()
        decision = self._ledger.decide(snapshot, config)
        fits = isinstance(decision, Placement)
        return Validation(
            valid=fits or (isinstance(decision, Refusal) and not decision.never),
            fits_now=fits,
            workers=1,
            gpus_per_worker=0 if config.is_share else config.gpu_count,
            nodes=(str(snapshot.node),) if fits else (),
            message="" if isinstance(decision, Placement) else refusal_text(snapshot, decision),
        )

    def allocate(self, config: TrainingGPUConfig, patience: Patience) -> Allocation:
        """Hold GPUs until they are released or this process ends."""
        held = self._ledger.acquire(config, patience)
        name = held.file.path.stem
        with self._changing:
            self._held[name] = held.file
        simulated = held.snapshot.inventory.simulated
        descriptor = held.file.descriptor
        return Allocation(
            allocation_id=name,
            config=config,
            workers=(_worker(held),),
            environment=environment_of(held.placement, simulated=simulated),
            give_back=lambda: self.release(name),
            simulated=simulated,
            pass_fds=() if descriptor is None else (descriptor,),
        )

    def release(self, allocation_id: str) -> None:
        """Release an allocation at once.

        Raises:
            NothingHeld: this process does not hold it.
        """
        with self._changing:
            file = self._held.pop(allocation_id, None)
        if file is None:
            raise NothingHeld(f"{allocation_id}: this process holds no such allocation")
        file.remove()

    def run(self, allocation_id: str, workload: Workload) -> None:
        """Refuse: on this machine only the caller starts processes.

        Raises:
            Unsupported: always.
        """
        raise Unsupported(
            f"{allocation_id} is of this machine: start {workload.command[0]} yourself, with "
            "allocation.environment, and with allocation.pass_fds for it to hold the GPUs too"
        )

    def close(self) -> None:
        """Release everything."""
        with self._changing:
            files, self._held = list(self._held.values()), {}
        for file in files:
            file.remove()
        self._gpus.close()


def environment_of(placement: Placement, *, simulated: bool) -> dict[str, str]:
    """Return the variables of a gpupack container, and those that CUDA reads."""
    first, uuids = placement.devices[0], ",".join(each.uuid for each in placement.devices)
    return {
        "CUDA_VISIBLE_DEVICES": uuids,
        "GPUPACK_DEVICES": uuids,
        "GPUPACK_DEVICE_PERCENT": str(first.milli // MILLI_PER_PERCENT),
        "GPUPACK_DEVICE_MEMORY_MIB": str(first.memory),
        "GPUPACK_DEVICE_ISOLATION": "cooperative" if first.shares else "exclusive",
        "GPUPACK_SIMULATED": str(simulated).lower(),
    }


def _worker(held: HeldPlacement) -> WorkerGpus:
    index = {each.uuid: each.index for each in held.snapshot.inventory.devices}
    uuids = [each.uuid for each in held.placement.devices]
    return WorkerGpus(
        str(held.placement.node), tuple(index[uuid] for uuid in uuids), tuple(map(str, uuids))
    )


def _node_status(snapshot: HostSnapshot) -> GPUResourceStatus:
    devices = tuple(_devices(snapshot))
    given = sum(PERCENT - each.free_percent for each in devices)
    return GPUResourceStatus(
        node_name=str(snapshot.node),
        gpu_type=", ".join(sorted({each.gpu_type for each in devices})),
        total_gpus=len(devices),
        available_gpus=sum(each.free_percent == PERCENT for each in devices),
        memory_per_gpu=min((each.memory_gb for each in devices), default=0.0),
        utilization=_percent(given, len(devices) * PERCENT),
        ready=True,
        devices=devices,
        simulated=snapshot.inventory.simulated,
    )


def _devices(snapshot: HostSnapshot) -> Iterator[DeviceStatus]:
    free = {each.uuid: each for each in snapshot.cluster().free_devices(snapshot.node)}
    for device in sorted(snapshot.inventory.devices, key=lambda each: each.index):
        left = free[device.uuid]
        free_percent = max(left.milli, 0) / MILLI_PER_PERCENT
        yield DeviceStatus(
            index=device.index,
            uuid=str(device.uuid),
            gpu_type=device.model,
            memory_gb=gigabytes(device.memory),
            free_percent=free_percent,
            free_memory_gb=gigabytes(max(left.memory, 0)),
            health=device.health.name.title(),
            given_percent=PERCENT - free_percent,
            simulated=snapshot.inventory.simulated,
        )


def _percent(part: float, whole: float) -> float:
    return round(part * PERCENT / whole, 1) if whole else 0.0
