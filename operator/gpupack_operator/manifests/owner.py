# SPDX-License-Identifier: Apache-2.0
"""Names, labels and owner of all objects that belong to a GPUJob.

Labels find children; the controller's ownerReference names their owner. Any user who may create a
pod can give it any labels, so a label alone proves nothing.
"""

from collections.abc import Collection

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob, owner_reference
from gpupack_kubeclient.objects import Job, Json, Object, OwnerReference, Pod


def metadata(
    job: GpuJob, *, name: str, attempt: int | None = None, worker: int | None = None
) -> Json:
    """Make a child's metadata; garbage collection deletes the child with the GPUJob."""
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": labels(job, attempt=attempt, worker=worker),
        "ownerReferences": [
            owner_reference(job.metadata.name, job.metadata.uid)
            | {"controller": True, "blockOwnerDeletion": False}
        ],
    }


def labels(job: GpuJob, *, attempt: int | None = None, worker: int | None = None) -> dict[str, str]:
    """Return the labels that find children; `worker` is the index of a worker with its own Job."""
    found = {names.JOB_LABEL: job.metadata.name, names.JOB_UID_LABEL: job.metadata.uid}
    found |= {} if attempt is None else {names.ATTEMPT_LABEL: str(attempt)}
    return found | ({} if worker is None else {names.INDEX_LABEL: str(worker)})


def is_ours(child: Object, job: GpuJob) -> bool:
    """Tell whether this GPUJob, and not another of the same name, controls a Job or Service."""
    owner = controller(child)
    near = child.metadata.namespace == job.metadata.namespace
    return near and owner is not None and owner.uid == job.metadata.uid


def is_from_predecessor(child: Object, job: GpuJob) -> bool:
    """Tell whether a child of the right name is left from a deleted GPUJob of the same name."""
    owner = controller(child)
    if owner is None or owner.uid == job.metadata.uid:
        return False
    return (owner.kind, owner.name) == ("GPUJob", job.metadata.name)


def is_worker(pod: Pod, job: GpuJob, jobs: Collection[Job]) -> bool:
    """Tell whether a pod belongs to one of a GPUJob's Jobs, or to one that is already deleted.

    Args:
        pod: a pod with the GPUJob's labels.
        job: the GPUJob.
        jobs: the GPUJob's Jobs that still exist.
    """
    owner = controller(pod)
    if owner is None or pod.metadata.namespace != job.metadata.namespace:
        return False
    if any(owner.uid == found.metadata.uid for found in jobs):
        return True
    name, attempt = job.metadata.name, attempt_of(pod)
    return owner.kind == "Job" and owner.name in _job_names(name, attempt, index_of(pod))


def is_gang_job(found: Job, job: GpuJob) -> bool:
    """Tell whether a Job has workers of the gang that start together, in any attempt."""
    name, attempt = job.metadata.name, attempt_of(found)
    return found.metadata.name in _job_names(name, attempt, index_of(found))[:2]


def is_extra_worker_job(found: Job, job: GpuJob) -> bool:
    """Tell whether a Job has an extra worker."""
    name, attempt = job.metadata.name, attempt_of(found)
    return found.metadata.name == _job_names(name, attempt, index_of(found))[2]


def _job_names(name: str, attempt: int, worker: int) -> tuple[str, str, str]:
    """Return a worker's possible Job names: of all workers, of its pod, of the worker alone."""
    return (
        names.job_name(name, attempt=attempt),
        names.pod_job_name(name, attempt=attempt, worker=worker),
        names.extra_job_name(name, attempt=attempt, worker=worker),
    )


def controller(child: Object) -> OwnerReference | None:
    """Return the one owner that creates and deletes an object."""
    return next((owner for owner in child.metadata.owner_references if owner.controller), None)


def is_controlled_by(pod: Pod, job: Job) -> bool:
    """Tell whether a pod belongs to this Job, and not to another of the same name."""
    owner = controller(pod)
    return owner is not None and owner.uid == job.metadata.uid


def index_of(child: Object) -> int:
    """Return the worker's index of a pod or of a Job with one worker; -1: it has none."""
    text = child.metadata.labels.get(names.INDEX_LABEL, "")
    return int(text) if text.isdecimal() else -1


def attempt_of(child: Object) -> int:
    """Return the attempt that a Job or pod belongs to; 0: the label is missing or not a number."""
    text = child.metadata.labels.get(names.ATTEMPT_LABEL, "")
    return int(text) if text.isdecimal() else 0
