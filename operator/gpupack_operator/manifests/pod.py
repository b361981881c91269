# SPDX-License-Identifier: Apache-2.0
"""The pod template of a worker: ours, with the user's merged over it."""

import dataclasses

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kube.objects import Json
from gpupack_operator.manifests import owner
from gpupack_operator.manifests.limits import limits
from gpupack_operator.manifests.merge import merged
from gpupack_operator.manifests.variables import RESULT_PATH, variables

UNREACHABLE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclasses.dataclass(frozen=True, slots=True)
class PodDefaults:
    """What the cluster's administrator decides about worker pods.

    Attributes:
        workload_image: image of the built-in workloads.
        priority_class: PriorityClass of worker pods; empty for none. One with preemptionPolicy
            Never keeps kube-scheduler from evicting others for one worker of a gang. (The policy
            cannot stand on the pod: admission refuses it there.)
        shm_size: size limit of /dev/shm, where NCCL and data loaders keep their buffers.
        evict_seconds: how long a worker stays bound to a node that does not answer.
    """

    workload_image: str
    priority_class: str = ""
    shm_size: str = "8Gi"
    evict_seconds: int = 20


def template(job: GpuJob, user: Json, *, attempt: int, defaults: PodDefaults) -> Json:
    """The pod template of one attempt, not yet pinned to nodes.

    Args:
        job: the GPUJob.
        user: its `spec.template` as written: the typed view keeps only what gpupack reads.
        attempt: number of the attempt.
        defaults: the administrator's choices.
    """
    metadata = user.get("metadata") or {}
    labels = metadata.get("labels", {}) | owner.labels(job, attempt=attempt)
    annotations = metadata.get("annotations", {})
    ours = _pod_spec(job, attempt=attempt, defaults=defaults)
    return {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": merged(ours, user.get("spec") or {}),
    }


def _pod_spec(job: GpuJob, *, attempt: int, defaults: PodDefaults) -> Json:
    spec: Json = {
        "schedulerName": names.SCHEDULER_NAME,
        "restartPolicy": "Never",
        "subdomain": job.metadata.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [_toleration(taint, defaults.evict_seconds) for taint in UNREACHABLE_TAINTS],
        "containers": [_worker(job, attempt=attempt, defaults=defaults)],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": defaults.shm_size}}
        ],
    }
    if defaults.priority_class:
        spec["priorityClassName"] = defaults.priority_class
    return spec


def _worker(job: GpuJob, *, attempt: int, defaults: PodDefaults) -> Json:
    container: Json = {
        "name": names.WORKER_CONTAINER,
        "env": variables(job, attempt=attempt),
        "resources": {"limits": limits(job.spec)},
        "securityContext": {"allowPrivilegeEscalation": False},
        "terminationMessagePath": RESULT_PATH,
        "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - in the pod
    }
    if job.spec.workload:
        container["image"] = defaults.workload_image
        container["imagePullPolicy"] = "IfNotPresent"
        container["args"] = [job.spec.workload.name, *job.spec.workload.args]
    return container


def _toleration(taint: str, seconds: int) -> Json:
    """Kubernetes' own default would leave workers on a lost node for five minutes."""
    return {
        "key": taint,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": seconds,
    }
