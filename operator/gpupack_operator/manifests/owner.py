# SPDX-License-Identifier: Apache-2.0
"""Names, labels and owner of everything that belongs to a GPUJob.

Labels find children; the controller's ownerReference says whose they are. Anybody who may create
a pod anywhere can label it as he likes, so a label alone proves nothing.
"""

from collections.abc import Collection

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob, owner_reference
from gpupack_kube.objects import Job, Json, Object, OwnerReference, Pod


def metadata(
    job: GpuJob, *, name: str, attempt: int | None = None, worker: int | None = None
) -> Json:
    """Metadata of a child; garbage collection removes it with the GPUJob, operator or not."""
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
    """Labels by which children are found again; `worker`: of one that has a Job of its own."""
    found = {names.JOB_LABEL: job.metadata.name, names.JOB_UID_LABEL: job.metadata.uid}
    found |= {} if attempt is None else {names.ATTEMPT_LABEL: str(attempt)}
    return found | ({} if worker is None else {names.INDEX_LABEL: str(worker)})


def is_ours(child: Object, job: GpuJob) -> bool:
    """Whether a Job or Service is controlled by this GPUJob, and not by another of its name."""
    owner = controller(child)
    near = child.metadata.namespace == job.metadata.namespace
    return near and owner is not None and owner.uid == job.metadata.uid


def is_predecessor_s(child: Object, job: GpuJob) -> bool:
    """Whether a child of the right name is left over from a deleted GPUJob of the same name."""
    owner = controller(child)
    if owner is None or owner.uid == job.metadata.uid:
        return False
    return (owner.kind, owner.name) == ("GPUJob", job.metadata.name)


def is_worker(pod: Pod, job: GpuJob, jobs: Collection[Job]) -> bool:
    """Whether a pod belongs to one of a GPUJob's Jobs, or to one that is gone already.

    Args:
        pod: a pod with the GPUJob's labels.
        job: the GPUJob.
        jobs: its Jobs that still exist.
    """
    owner = controller(pod)
    if owner is None or pod.metadata.namespace != job.metadata.namespace:
        return False
    if any(owner.uid == found.metadata.uid for found in jobs):
        return True
    name, attempt = job.metadata.name, attempt_of(pod)
    return owner.kind == "Job" and owner.name in _job_names(name, attempt, index_of(pod))


def is_gang_s(found: Job, job: GpuJob) -> bool:
    """Whether a Job has workers of the gang that start together, of whatever attempt."""
    name, attempt = job.metadata.name, attempt_of(found)
    return found.metadata.name in _job_names(name, attempt, index_of(found))[:2]


def is_beside(found: Job, job: GpuJob) -> bool:
    """Whether a Job has a worker beyond those."""
    name, attempt = job.metadata.name, attempt_of(found)
    return found.metadata.name == _job_names(name, attempt, index_of(found))[2]


def _job_names(name: str, attempt: int, worker: int) -> tuple[str, str, str]:
    """What the Job with a worker may be called: of all workers, of its pod, of it alone."""
    return (
        names.job_name(name, attempt=attempt),
        names.pod_job_name(name, attempt=attempt, worker=worker),
        names.extra_job_name(name, attempt=attempt, worker=worker),
    )


def controller(child: Object) -> OwnerReference | None:
    """The one owner that makes and removes an object."""
    return next((owner for owner in child.metadata.owner_references if owner.controller), None)


def is_controlled_by(pod: Pod, job: Job) -> bool:
    """Whether a pod is this Job's, and not of another of its name."""
    owner = controller(pod)
    return owner is not None and owner.uid == job.metadata.uid


def index_of(child: Object) -> int:
    """The worker's index, of a pod or of the Job that a worker has for itself; -1: it has none."""
    text = child.metadata.labels.get(names.INDEX_LABEL, "")
    return int(text) if text.isdecimal() else -1


def attempt_of(child: Object) -> int:
    """The attempt that a Job or pod belongs to; 0 where the label is missing or no number."""
    text = child.metadata.labels.get(names.ATTEMPT_LABEL, "")
    return int(text) if text.isdecimal() else 0
