# SPDX-License-Identifier: Apache-2.0
"""What waits in the queue, in the form of answers: GPUJobs and standalone pods."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from gpupack_apiserver.job_views import job_view
from gpupack_apiserver.read_model import ReadModel
from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds.gpujob_status import gpu_count
from gpupack_kubeclient import objects
from gpupack_placement import Request
from gpupack_queue import JobId
from gpupack_restapi.jobs import QueueRow
from gpupack_scheduler.queueing.pending.request import job_id


def waiting_jobs(
    model: ReadModel, jobs: Collection[ShownJob], positions: Mapping[JobId, int]
) -> Iterator[QueueRow]:
    """Yield the jobs that wait."""
    for job in jobs:
        if job.status.phase != "Pending" or not job.may_wait:
            continue
        attempt = model.queue_copy.attempt(job.metadata.uid)
        place = positions.get(job_id(attempt)) if attempt else None
        shown = msgspec.structs.asdict(job_view(job))
        yield QueueRow(**shown, kind="GPUJob", position=place)


def waiting_pods(
    model: ReadModel, namespaces: Collection[str], positions: Mapping[JobId, int]
) -> Iterator[QueueRow]:
    """Yield standalone pods of these namespaces that wait."""
    for uid, pod in model.ledger.pods.gated.items():
        if pod.metadata.namespace in namespaces:
            job = model.queue_copy.observed.pending_id(uid)
            yield _pod_row(model, pod, positions.get(job))


def _pod_row(model: ReadModel, pod: objects.Pod, position: int | None) -> QueueRow:
    uid = pod.metadata.uid
    pending = model.ledger.pods.waiting(uid)
    conditions = (each for each in pod.status.conditions if each.type == "PodScheduled")
    scheduled = next(conditions, None)
    obstacle = model.queue_copy.observed.obstacle_of_pod(uid)
    return QueueRow(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        phase="Pending",
        reason=scheduled.reason if scheduled else "",
        message=obstacle or (scheduled.message if scheduled else ""),
        workers=1,
        gpus=gpu_count(_gpus(pending.request)) if pending and pending.request else "",
        nodes="",
        attempt=0,
        priority=pending.priority if pending else 0,
        preemptions=0,
        restarts=0,
        workload="",
        result="",
        created=pod.metadata.creation_timestamp,
        started=None,
        kind="Pod",
        position=position,
    )


def _gpus(request: Request) -> str:
    """Return the request in the form of a GPUJob's column."""
    if request.share is not None:
        return f"{request.share.milli / 10:g}%"
    if request.slices is not None:
        return f"{request.slices.number}x{request.slices.profile}"
    return str(request.gpus or 0)
