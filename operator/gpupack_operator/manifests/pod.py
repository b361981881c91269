# SPDX-License-Identifier: Apache-2.0
"""Pod template of a worker: gpupack's, with the user's merged over it."""

import dataclasses
import hashlib
from typing import Any

import msgspec

from gpupack_crds import names
from gpupack_crds.gpujob import GpuJobSpec, Role
from gpupack_crds.kinds import GpuJob
from gpupack_crds.vendors import Vendors
from gpupack_kubeclient.objects import Json
from gpupack_operator.errors import TemplateInvalid
from gpupack_operator.manifests import mpi, owner
from gpupack_operator.manifests.limits import limits
from gpupack_operator.manifests.merge import merge
from gpupack_operator.manifests.nesting import check_nesting
from gpupack_operator.manifests.pulling import IF_NOT_PRESENT, PullSettings
from gpupack_operator.manifests.result_bytes import with_result_bytes
from gpupack_operator.manifests.shared_pod import sharing_obstacle
from gpupack_operator.manifests.socket_defaults import with_socket_defaults
from gpupack_operator.manifests.variables import NO_VENDORS, RESULT_PATH, variables

GRACE_SECONDS = 30
"""Time between SIGTERM and SIGKILL if the template sets none."""
LOG_FALLBACK_POLICY = "FallbackToLogsOnError"
UNREACHABLE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclasses.dataclass(frozen=True, slots=True)
class PodDefaults:
    """Settings of worker pods that the cluster's administrator chooses.

    Attributes:
        workload_image: image of the built-in workloads.
        priority_class: PriorityClass of worker pods whose job names none; empty: none. One with
            preemptionPolicy Never keeps kube-scheduler from evicting other pods for one worker of a
            gang. (The policy cannot be set on the pod: admission refuses it there.)
        shm_size: size limit of /dev/shm, where NCCL and data loaders keep their buffers.
        evict_seconds: how long a worker stays bound to a node that is not ready or unreachable.
        multicast: let workers use NVLink multicast; for clusters of a single team.
        socket_defaults: set the number of sockets that NCCL opens between nodes.
        vendors: the settings of each vendor's GPUs.
        launcher_image: image that contains mpirun's launcher: the agent's, which is on each node.
        pulling: how nodes pull both images.
    """

    workload_image: str
    priority_class: str = ""
    shm_size: str = "8Gi"
    evict_seconds: int = 20
    multicast: bool = False
    socket_defaults: bool = True
    vendors: Vendors = NO_VENDORS
    launcher_image: str = ""
    pulling: PullSettings = IF_NOT_PRESENT


def template(
    job: GpuJob,
    user: Json,
    *,
    attempt: int,
    defaults: PodDefaults,
    role: Role | None = None,
) -> Json:
    """Make the pod template of one attempt, not yet pinned to nodes.

    Args:
        job: the GPUJob; with a role, as `GpuJobSpec.of_role` makes it.
        user: its `spec.template` as written: the typed view keeps only the fields that gpupack
            reads.
        attempt: number of the attempt.
        defaults: the administrator's choices.
        role: the role of the workers; None: the job has no roles.

    Raises:
        TemplateInvalid: the user's template cannot be merged over gpupack's, or names no command
            for the ranks.
    """
    check_nesting(user)
    metadata = user.get("metadata") or {}
    labels = metadata.get("labels", {}) | owner.labels(job, attempt=attempt)
    if role is not None:
        labels |= {names.ROLE_LABEL: role.name}
    annotations = (
        no_drain_annotations(job.spec)
        | metadata.get("annotations", {})
        | share_annotations(job.spec)
    )
    container = _worker(job, attempt=attempt, defaults=defaults, role=role)
    container["name"] = worker_container(job, user)
    ours = _pod_spec(job, container, defaults=defaults)
    spec = _with_dns_policy(merge(ours, user.get("spec") or {}))
    if defaults.socket_defaults:
        spec = with_socket_defaults(spec, job.spec, container=container["name"])
    if job.spec.by_mpirun:
        secret = names.mpi_secret(job.metadata.uid, attempt=attempt)
        launcher = mpi.LauncherSettings(
            container["name"], secret, defaults.launcher_image, defaults.pulling.policy
        )
        spec = mpi.with_launcher(spec, launcher)
    if has_our_images(job.spec):
        spec = defaults.pulling.with_pull_secrets(spec)
    if job.spec.may_share_pods and job.spec.pod_per_worker is False:
        _check_sharable(spec, container["name"])
    return {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": with_result_bytes(_with_log_fallback(spec), {container["name"]}),
    }


def _check_sharable(pod_spec: Json, container: str) -> None:
    """Refuse a template that workers of one pod cannot share if the spec requires shared pods."""
    if why := sharing_obstacle(pod_spec, container):
        raise TemplateInvalid(
            f"podPerWorker is false: workers of the job on one node share a pod, and {why}; change "
            "the template, or set podPerWorker: true, which gives each worker a pod"
        )


def has_our_images(spec: GpuJobSpec) -> bool:
    """Tell whether the pods of a job use an image of gpupack."""
    workloads = (spec.workload, *(role.workload for role in spec.roles))
    return spec.by_mpirun or any(each is not None for each in workloads)


def no_drain_annotations(spec: GpuJobSpec) -> dict[str, str]:
    """Return annotations that keep node autoscalers from draining a worker's node.

    A movable job gets none. Eviction of one worker ends the attempt of the whole gang. Users can
    decide otherwise: the template's annotations override these.
    """
    if spec.movable:
        return {}
    return {names.SAFE_TO_EVICT_ANNOTATION: "false", names.DO_NOT_DISRUPT_ANNOTATION: "true"}


def share_annotations(spec: GpuJobSpec) -> dict[str, str]:
    """Return a worker's annotations about its share.

    They are empty if the share has the default settings.
    """
    if spec.share is None:
        return {}
    said = {
        names.ISOLATION_ANNOTATION: (spec.share.isolation, "cooperative"),
        names.SHARE_WITH_ANNOTATION: (spec.share.share_with, "anyone"),
    }
    return {name: value for name, (value, usual) in said.items() if value != usual}


def template_hash(
    job: GpuJob, user: Json, *, defaults: PodDefaults, role: Role | None = None
) -> str:
    """Return a hash that is equal for jobs whose pods differ only in names, commands, args and env.

    A sweep runs one program with a thousand values of `command`, `args` and `env`: its pods fit the
    same places. These values are left out only if they have the type that a pod requires there.

    Raises:
        TemplateInvalid: under the conditions of `template`.
    """
    meta = msgspec.structs.replace(job.metadata, name="", uid="")
    nameless = msgspec.structs.replace(job, metadata=meta)
    made = template(nameless, user, attempt=0, defaults=defaults, role=role)
    spec = made["spec"] | {
        key: [_without_command(each) for each in made["spec"][key]]
        for key in ("containers", "initContainers")
        if key in made["spec"]
    }
    return hashlib.sha256(msgspec.json.encode(made | {"spec": spec})).hexdigest()


def _without_command(container: Json) -> Json:
    """Return a container without its command, args and values of variables."""
    lists = {key: container.get(key) for key in ("command", "args")}
    left_out = {key for key, found in lists.items() if _are_texts(found)}
    kept = {key: found for key, found in container.items() if key not in left_out}
    env = container.get("env")
    if isinstance(env, list):
        kept["env"] = [_without_value(each) for each in env]
    return kept


def _without_value(variable: Any) -> Any:
    is_text = isinstance(variable, dict) and isinstance(variable.get("value"), str)
    return variable | {"value": ""} if is_text else variable


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(each, str) for each in found)


def worker_container(job: GpuJob, user: Json) -> str:
    """Return the name of the worker's container; a template's only container keeps its own name."""
    containers = (user.get("spec") or {}).get("containers") or []
    alone = len(containers) == 1 and job.spec.workload is None
    return containers[0]["name"] if alone else names.WORKER_CONTAINER


def _with_dns_policy(pod_spec: Json) -> Json:
    """Let a hostNetwork pod resolve the names of workers unless the template sets dnsPolicy."""
    if pod_spec.get("hostNetwork") is not True:
        return pod_spec
    return {"dnsPolicy": "ClusterFirstWithHostNet"} | pod_spec


def _with_log_fallback(pod_spec: Json) -> Json:
    """Let the kubelet keep the end of a log if a container fails and left no message."""
    fallback = {"terminationMessagePolicy": LOG_FALLBACK_POLICY}
    kinds = ("containers", "initContainers")
    said = {
        kind: [fallback | container for container in pod_spec[kind]]
        for kind in kinds
        if kind in pod_spec
    }
    return pod_spec | said


def _pod_spec(job: GpuJob, worker: Json, *, defaults: PodDefaults) -> Json:
    spec: Json = {
        "schedulerName": names.SCHEDULER_NAME,
        "restartPolicy": "Never",
        "subdomain": job.metadata.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _security_context(job),
        "tolerations": [_toleration(taint, defaults.evict_seconds) for taint in UNREACHABLE_TAINTS],
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [worker],
        "volumes": [
            {
                "name": names.SHM_VOLUME,
                "emptyDir": {"medium": "Memory", "sizeLimit": defaults.shm_size},
            }
        ],
    }
    if priority_class := job.spec.priority_class_name or defaults.priority_class:
        spec["priorityClassName"] = priority_class
    return spec


def _security_context(job: GpuJob) -> Json:
    """Return the security context that Pod Security's level `restricted` requires of a pod.

    A user decides whether the user's image runs as root: most images of GPU programs do, and would
    not start otherwise.
    """
    context: Json = {"seccompProfile": {"type": "RuntimeDefault"}}
    return context | ({"runAsNonRoot": True} if job.spec.workload else {})


def _worker(job: GpuJob, *, attempt: int, defaults: PodDefaults, role: Role | None = None) -> Json:
    container: Json = {
        "name": names.WORKER_CONTAINER,
        "env": variables(
            job,
            attempt=attempt,
            multicast=defaults.multicast,
            vendors=defaults.vendors,
            role=role,
        ),
        "resources": {"limits": limits(job.spec)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": RESULT_PATH,
        "volumeMounts": [{"name": names.SHM_VOLUME, "mountPath": names.SHM_PATH}],
    }
    if job.spec.workload:
        container["image"] = defaults.workload_image
        container["imagePullPolicy"] = defaults.pulling.policy
        container["args"] = [job.spec.workload.name, *job.spec.workload.args]
        if job.spec.by_mpirun:
            container["command"] = list(mpi.WORKLOADS_COMMAND)
    return container


def _toleration(taint: str, seconds: int) -> Json:
    """Make the toleration.

    Kubernetes' default would leave workers on a lost node for five minutes.
    """
    return {
        "key": taint,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": seconds,
    }
