# SPDX-License-Identifier: Apache-2.0
"""GPUJobs in the form of answers."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds.devices import DeviceShare
from gpupack_crds.gpujob_status import gpu_count
from gpupack_crds.placement import by_worker
from gpupack_placement import Cluster, NodeName
from gpupack_restapi.jobs import AttemptView, HeldDevice, JobView, WorkerView

NO_PODS: Final[Mapping[int, str]] = MappingProxyType({})


def job_view(job: ShownJob) -> JobView:
    """Return a summary of a GPUJob."""
    spec, status = job.spec, job.status
    return JobView(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        phase=status.phase,
        reason=status.reason,
        message=status.message,
        workers=spec.workers,
        gpus=gpu_count(status.gpus),
        nodes=status.nodes,
        attempt=status.attempt,
        priority=status.priority,
        preemptions=status.preemptions,
        restarts=status.restarts,
        workload=spec.workload.name if spec.workload else "",
        result=status.headline,
        created=job.metadata.creation_timestamp,
        started=status.started_at,
    )


def attempt_views(job: ShownJob) -> list[AttemptView]:
    """Return the attempts of a job, newest last."""
    return [
        AttemptView(
            number=each.number,
            started=each.started_at,
            finished=each.finished_at,
            outcome=each.outcome,
            reason=each.reason,
            message=each.message,
            nodes=each.nodes if isinstance(each.nodes, str) else ", ".join(each.nodes),
        )
        for each in job.status.attempts
    ]


def worker_views(
    job: ShownJob, cluster: Cluster, pods: Mapping[int, str] = NO_PODS
) -> list[WorkerView]:
    """Return the places of the current attempt's workers, by index; none where it holds no places.

    `pods`: names of the pods, by worker.
    """
    if not job.status.holds_placement:
        return []
    return [
        WorkerView(
            placed.worker,
            placed.node,
            tuple(held_device(share, placed.node, cluster) for share in placed.devices),
            pods.get(placed.worker, ""),
        )
        for placed in by_worker(job.status.placement)
    ]


def held_device(share: DeviceShare, node: str, cluster: Cluster) -> HeldDevice:
    """Return a device that is held on a node, with its index there."""
    return HeldDevice(
        index=index_of(share.uuid, node, cluster),
        uuid=share.uuid,
        percent=share.percent,
        memory_mib=share.memory_mib,
    )


def index_of(uuid: str, node: str, cluster: Cluster) -> int | None:
    """Return the index of a device on its node; None: the node does not list it."""
    found = cluster.node(NodeName(node))
    devices = found.devices if found else ()
    return next((each.index for each in devices if each.uuid == uuid), None)
