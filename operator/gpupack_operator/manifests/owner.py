# SPDX-License-Identifier: Apache-2.0
"""Names, labels and owner of everything that belongs to a GPUJob."""

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kube.objects import Json, Object


def metadata(job: GpuJob, *, name: str, attempt: int | None = None) -> Json:
    """Metadata of a child; garbage collection removes it with the GPUJob, operator or not."""
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": labels(job, attempt=attempt),
        "ownerReferences": [
            {
                "apiVersion": names.API_VERSION,
                "kind": "GPUJob",
                "name": job.metadata.name,
                "uid": job.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }


def labels(job: GpuJob, *, attempt: int | None = None) -> dict[str, str]:
    """Labels by which children are found again."""
    found = {names.JOB_LABEL: job.metadata.name, names.JOB_UID_LABEL: job.metadata.uid}
    return found | ({} if attempt is None else {names.ATTEMPT_LABEL: str(attempt)})


def is_ours(child: Object, job: GpuJob) -> bool:
    """Whether an object of the right name was made for this GPUJob, and not for another."""
    return any(owner.uid == job.metadata.uid for owner in child.metadata.owner_references)


def attempt_of(child: Object) -> int:
    """The attempt that a Job or pod belongs to; 0 where the label is missing or no number."""
    text = child.metadata.labels.get(names.ATTEMPT_LABEL, "")
    return int(text) if text.isdecimal() else 0
