# SPDX-License-Identifier: Apache-2.0
"""The Job that runs one attempt.

A new Job for each attempt, because a Job's own retries neither see a kubelet's rejection nor go
on while a pod hangs on a dead node. So within a Job nothing is retried: the first failed worker
fails the Job, and its controller stops the others. Where the failure policy ignores some exit
codes, each index fails alone instead and the others run on; the operator judges the outcome.

A worker of an elastic gang beyond the least has a Job of its own, which may come and go. Where
workers share pods, each pod of the gang has one: pods of an indexed Job are all alike, and these
have different numbers of containers.
"""

from gpupack_crds import names
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.kinds import GpuJob
from gpupack_crds.worker_pods import WorkerPod
from gpupack_kube.objects import Json
from gpupack_operator.manifests import owner
from gpupack_operator.manifests.affinity import pinned
from gpupack_operator.manifests.result_bytes import injected_containers
from gpupack_operator.manifests.shared_pod import shared


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
    name = names.extra_job_name(gpujob.metadata.name, attempt=attempt, worker=worker)
    metadata = owner.metadata(gpujob, name=name, attempt=attempt, worker=worker)
    return _of_one_pod(metadata, template, node=node)


def job_of_pod(
    gpujob: GpuJob,
    template: Json,
    pod: WorkerPod,
    *,
    attempt: int,
    container: str,
    deadline_seconds: int | None,
) -> Json:
    """The Job NAME-n-pI of one pod of a gang whose workers share pods.

    Args:
        gpujob: its owner.
        template: of a pod with one worker, not pinned yet.
        pod: which workers it has, and where; I is the first of them.
        attempt: n.
        container: name of the worker's container in the template.
        deadline_seconds: what is left of the GPUJob's deadline.
    """
    name = gpujob.metadata.name
    host = f"{names.job_name(name, attempt=attempt)}-{pod.index}"
    injected = injected_containers(template["spec"], gpujob.status.planned_pod)
    job_name = names.pod_job_name(name, attempt=attempt, worker=pod.index)
    made = _of_one_pod(
        owner.metadata(gpujob, name=job_name, attempt=attempt, worker=pod.index),
        shared(template, pod, container=container, hostname=host, injected=injected),
        node=pod.node,
    )
    if deadline_seconds is not None:
        made["spec"]["activeDeadlineSeconds"] = deadline_seconds
    return made


def _of_one_pod(metadata: Json, template: Json, *, node: str) -> Json:
    """A Job whose pod has the labels of the Job, among them the worker's index."""
    meta = template["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "podReplacementPolicy": "Failed",
            "backoffLimit": 0,
            "template": {
                "metadata": meta | {"labels": meta["labels"] | metadata["labels"]},
                "spec": pinned(template["spec"], (node,)),
            },
        },
    }


def _backoff(spec: GpuJobSpec) -> Json:
    return {"backoffLimitPerIndex": 0} if spec.ignores_failures else {"backoffLimit": 0}
