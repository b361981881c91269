# SPDX-License-Identifier: Apache-2.0
"""Job that runs one attempt.

Each attempt gets a new Job, because a Job's own retries neither detect a kubelet's rejection nor
continue while a pod hangs on a dead node. So a Job retries nothing: the first failed worker fails
the Job, and its controller stops the others. Where the failure policy ignores some exit codes, each
index fails alone and the others continue; the operator judges the outcome.

An extra worker of an elastic gang has its own Job, which may be created and deleted while the gang
runs. Where workers share pods, each pod of the gang has its own Job: pods of an indexed Job are all
alike, and these pods have different numbers of containers. Workers of several roles have a Job each
for the same reason.
"""

from gpupack_crds import names
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.kinds import GpuJob
from gpupack_crds.worker_pods import WorkerPod
from gpupack_kubeclient.objects import Json
from gpupack_operator.manifests import owner
from gpupack_operator.manifests.affinity import pin_to_nodes
from gpupack_operator.manifests.containers import with_changed
from gpupack_operator.manifests.pod import worker_container
from gpupack_operator.manifests.result_bytes import injected_containers
from gpupack_operator.manifests.shared_pod import shared_template, with_completion_index
from gpupack_operator.manifests.variables import ROLE_INDEX
from gpupack_operator.manifests.worker_kind import WorkerKind


def job(
    gpujob: GpuJob,
    template: Json,
    *,
    attempt: int,
    nodes: tuple[str, ...],
    deadline_seconds: int | None,
) -> Json:
    """Make the Job NAME-n of the gang.

    Args:
        gpujob: its owner.
        template: pod template, not yet pinned to nodes.
        attempt: n.
        nodes: planned nodes; the pods are pinned to them where they are few.
        deadline_seconds: time left until the GPUJob's deadline; None: there is no deadline.
    """
    workers = gpujob.spec.least
    spec: Json = {
        "completionMode": "Indexed",
        "completions": workers,
        "parallelism": workers,
        "podReplacementPolicy": "Failed",
        "template": template | {"spec": pin_to_nodes(template["spec"], nodes)},
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


def extra_worker_job(
    gpujob: GpuJob, template: Json, *, attempt: int, worker: int, node: str
) -> Json:
    """Make the Job NAME-n-xI of one extra worker; the operator ends it with the attempt.

    Args:
        gpujob: its owner.
        template: pod template, not yet pinned to nodes.
        attempt: n.
        worker: I, the worker's index.
        node: the planned node.
    """
    name = names.extra_job_name(gpujob.metadata.name, attempt=attempt, worker=worker)
    metadata = owner.metadata(gpujob, name=name, attempt=attempt, worker=worker)
    return _of_one_pod(metadata, template, node=node)


def worker_job(
    kind: WorkerKind,
    template: Json,
    *,
    attempt: int,
    worker: int,
    node: str,
    deadline_seconds: int | None,
) -> Json:
    """Make the Job NAME-n-pI of one worker of a gang whose workers differ.

    Args:
        kind: the worker's role.
        template: pod template of the role, not yet pinned to nodes.
        attempt: n.
        worker: I, the worker's index.
        node: the planned node.
        deadline_seconds: time left until the GPUJob's deadline; None: there is no deadline.
    """
    name = kind.job.metadata.name
    host = f"{names.job_name(name, attempt=attempt)}-{worker}"
    job_name = names.pod_job_name(name, attempt=attempt, worker=worker)
    metadata = owner.metadata(kind.job, name=job_name, attempt=attempt, worker=worker)
    place = {"name": ROLE_INDEX, "value": str(worker - kind.first)}
    container = {worker_container(kind.job, kind.user)}
    pod_spec = with_changed(
        template["spec"], container, lambda each: each | {"env": [place, *each["env"]]}
    )
    meta = template["metadata"]
    annotations = meta["annotations"] | {names.INDEX_LABEL: str(worker)}
    made = _of_one_pod(
        metadata,
        {
            "metadata": meta | {"annotations": annotations},
            "spec": with_completion_index(pod_spec, worker) | {"hostname": host},
        },
        node=node,
    )
    if deadline_seconds is not None:
        made["spec"]["activeDeadlineSeconds"] = deadline_seconds
    return made


def job_of_pod(
    gpujob: GpuJob,
    template: Json,
    pod: WorkerPod,
    *,
    attempt: int,
    container: str,
    deadline_seconds: int | None,
) -> Json:
    """Make the Job NAME-n-pI of one pod of a gang whose workers share pods.

    Args:
        gpujob: its owner.
        template: template of a pod with one worker, not yet pinned to nodes.
        pod: the pod's workers and node; I is the index of the first worker.
        attempt: n.
        container: name of the worker's container in the template.
        deadline_seconds: time left until the GPUJob's deadline; None: there is no deadline.
    """
    name = gpujob.metadata.name
    host = f"{names.job_name(name, attempt=attempt)}-{pod.index}"
    injected = injected_containers(template["spec"], gpujob.status.planned_pod)
    job_name = names.pod_job_name(name, attempt=attempt, worker=pod.index)
    made = _of_one_pod(
        owner.metadata(gpujob, name=job_name, attempt=attempt, worker=pod.index),
        shared_template(template, pod, container=container, hostname=host, injected=injected),
        node=pod.node,
    )
    if deadline_seconds is not None:
        made["spec"]["activeDeadlineSeconds"] = deadline_seconds
    return made


def _of_one_pod(metadata: Json, template: Json, *, node: str) -> Json:
    """Make a Job whose pod has the labels of the Job, including the worker's index."""
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
                "spec": pin_to_nodes(template["spec"], (node,)),
            },
        },
    }


def _backoff(spec: GpuJobSpec) -> Json:
    return {"backoffLimitPerIndex": 0} if spec.ignores_failures else {"backoffLimit": 0}
