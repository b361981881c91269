# SPDX-License-Identifier: Apache-2.0
"""The Job that runs one attempt.

A new Job for each attempt, because a Job's own retries neither see a kubelet's rejection nor go
on while a pod hangs on a dead node. So within a Job nothing is retried: the first failed worker
fails the Job, and its controller stops the others. Where the failure policy ignores some exit
codes, each index fails alone instead and the others run on; the operator judges the outcome.

A worker of an elastic gang beyond the least has a Job of its own, which may come and go.
"""

from gpupack_crds import names
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.kinds import GpuJob
from gpupack_kube.objects import Json
from gpupack_operator.manifests import owner
from gpupack_operator.manifests.affinity import pinned


def job(
    gpujob: GpuJob,
    template: Json,
    *,
    attempt: int,
    nodes: tuple[str, ...],
    deadline_seconds: int | None,
) -> Json:
    """The Job NAME-n.

    Args:
        gpujob: its owner.
        template: pod template, not pinned yet.
        attempt: n.
        nodes: planned nodes; the pods are pinned to them where they are few.
        deadline_seconds: what is left of the GPUJob's deadline.
    """
    workers = gpujob.spec.least
    spec: Json = {
        "completionMode": "Indexed",
        "completions": workers,
        "parallelism": workers,
        "podReplacementPolicy": "Failed",
        "template": template | {"spec": pinned(template["spec"], nodes)},
        **_backoff(gpujob.spec),
    }
    if deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = deadline_seconds
    name = names.job_name(gpujob.metadata.name, attempt=attempt)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": owner.metadata(gpujob, name=name, attempt=attempt),
        "spec": spec,
    }


def job_beside(gpujob: GpuJob, template: Json, *, attempt: int, worker: int, node: str) -> Json:
    """The Job NAME-n-xI of one worker beyond the least; the operator ends it with the attempt.

    Args:
        gpujob: its owner.
        template: pod template, not pinned yet.
        attempt: n.
        worker: I, its index.
        node: where its place is.
    """
    meta = template["metadata"]
    labels = meta["labels"] | owner.labels(gpujob, attempt=attempt, worker=worker)
    name = names.extra_job_name(gpujob.metadata.name, attempt=attempt, worker=worker)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": owner.metadata(gpujob, name=name, attempt=attempt, worker=worker),
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "podReplacementPolicy": "Failed",
            "backoffLimit": 0,
            "template": {
                "metadata": meta | {"labels": labels},
                "spec": pinned(template["spec"], (node,)),
            },
        },
    }


def _backoff(spec: GpuJobSpec) -> Json:
    return {"backoffLimitPerIndex": 0} if spec.ignores_failures else {"backoffLimit": 0}
