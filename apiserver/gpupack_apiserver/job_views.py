# SPDX-License-Identifier: Apache-2.0
"""GPUJobs in the form of answers."""

import datetime as dt
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds.devices import DeviceShare
from gpupack_crds.gpujob_status import gpu_count
from gpupack_crds.placement import by_worker
from gpupack_placement import Cluster, NodeName

NO_PODS: Final[Mapping[int, str]] = MappingProxyType({})


class JobView(msgspec.Struct, frozen=True):
    """A summary of a GPUJob; `gpus` is a number of whole GPUs, or shares and MIG slices, 2x40%."""

    namespace: str
    name: str
    phase: str
    reason: str
    message: str
    workers: int
    gpus: int | str
    nodes: str
    attempt: int
    priority: int
    preemptions: int
    restarts: int
    workload: str
    result: str
    created: dt.datetime | None
    started: dt.datetime | None


class AttemptView(msgspec.Struct, frozen=True):
    """One attempt of a job."""

    number: int
    started: dt.datetime | None
    finished: dt.datetime | None
    outcome: str | None
    reason: str
    message: str
    nodes: str


class HeldDevice(msgspec.Struct, frozen=True):
    """A GPU, or a share of one, that a worker has.

    Attributes:
        index: index on its node; None: the node does not list it now.
        percent: percent of its time; 100: the whole GPU.
        memory_mib: memory of it, in MiB.
    """

    index: int | None
    uuid: str
    percent: int
    memory_mib: int


class WorkerView(msgspec.Struct, frozen=True):
    """The place of a worker.

    Attributes:
        devices: its GPUs; empty where another device plugin chooses them.
        pod: name of its pod, which several workers may share; empty: it has none, or the caller may
            not list pods.
    """

    worker: int
    node: str
    devices: list[HeldDevice]
    pod: str = ""


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
            [held_device(share, placed.node, cluster) for share in placed.devices],
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
