# SPDX-License-Identifier: Apache-2.0
"""The GPUs of one worker, and the hosts of its job's workers."""

from typing import Final

import msgspec

from gpupack.process_setup import SetupInvalid, Visible
from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds import names
from gpupack_crds.devices import DeviceShare
from gpupack_crds.placement import WorkerPlacement, by_worker
from gpupack_crds.worker_pods import pods_of
from gpupack_placement import Cluster, DeviceUuid

ALLOCATION: Final = f"{names.GROUP}/allocation"
"""Label of GPUJobs that only hold GPUs."""


class PlacedProcess(msgspec.Struct, frozen=True):
    """The data for a process of a worker.

    Attributes:
        visible: its worker's GPUs.
        hosts: hosts of all workers, by index.
        ranks_before: GPUs of the workers before it.
        ranks: GPUs of all workers.
    """

    visible: tuple[Visible, ...]
    hosts: tuple[str, ...]
    ranks_before: int
    ranks: int


def placed_process(job: ShownJob, cluster: Cluster, *, worker: int, by_node: bool) -> PlacedProcess:
    """Return the data for a worker of a GPUJob's current attempt.

    Args:
        job: the GPUJob.
        cluster: source of models and memory.
        worker: index of the worker.
        by_node: name workers by their nodes, as for programs outside pods; else by the names from
            the job's Service.

    Raises:
        SetupInvalid: it has no GPUs now, or there is no such worker.
    """
    placed = by_worker(job.status.placement) if job.status.holds_placement else ()
    if not any(each.devices for each in placed):
        phase = job.status.phase
        raise SetupInvalid("job", "/".join(job.key), f"it has no GPUs now, being {phase}; wait")
    mine = next((each for each in placed if each.worker == worker), None)
    if mine is None:
        raise SetupInvalid("worker", worker, f"give 0 to {placed[-1].worker}")
    hosts = {} if by_node else _hosts(job)
    return PlacedProcess(
        visible=tuple(_visible(mine, cluster)),
        hosts=tuple(hosts.get(each.worker, each.node) for each in placed),
        ranks_before=sum(len(each.devices) for each in placed if each.worker < worker),
        ranks=sum(len(each.devices) for each in placed),
    )


def visible_device(uuid: str, cluster: Cluster) -> Visible | None:
    """Return the known data of a GPU or MIG slice; None: no node lists it."""
    name = cluster.node_of_device(DeviceUuid(uuid))
    node = cluster.node(name) if name else None
    device = next((each for each in node.devices if each.uuid == uuid), None) if node else None
    return Visible(uuid, device.model, device.memory) if device else None


def visible_share(share: DeviceShare, cluster: Cluster) -> Visible:
    """Return the known data of a GPU, or of the held part of it."""
    whole = visible_device(share.uuid, cluster)
    return Visible(
        share.uuid,
        whole.model if whole else "",
        share.memory_mib,
        total_mib=0 if share.whole or whole is None else whole.memory_mib,
    )


def _visible(worker: WorkerPlacement, cluster: Cluster) -> list[Visible]:
    return [visible_share(share, cluster) for share in worker.devices]


def _hosts(job: ShownJob) -> dict[int, str]:
    """Return the pod's host name for each worker: workers in one pod have the name of its first."""
    name, namespace = job.metadata.name, job.metadata.namespace
    prefix = names.job_name(name, attempt=job.status.attempt)
    return {
        worker: f"{prefix}-{pod.index}.{name}.{namespace}.svc"
        for pod in pods_of(job.status, least=job.spec.least)
        for worker in pod.workers
    }
