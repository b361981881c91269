# SPDX-License-Identifier: Apache-2.0
"""Names that several components use."""

import re
from typing import Final

GROUP: Final = "gpupack.dev"
VERSION: Final = "v1beta1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
API_PREFIX: Final = f"/apis/{API_VERSION}"

SCHEDULER_NAME: Final = "gpupack"
SYSTEM_NAMESPACE: Final = "gpupack-system"
ACCEPTANCE_NAMESPACE: Final = "gpupack-acceptance"
"""Namespace of burn-ins: only GPUJobs in it get GPUs that are in acceptance."""

GPU: Final = f"{GROUP}/gpu"
"""Whole GPUs; the agent's device plugin advertises one device token for each GPU."""
GPU_SHARE: Final = f"{GROUP}/gpu-share"
"""A share of one GPU; the device plugin advertises several slots for each GPU."""
SHARE_SLOTS_PER_GPU: Final = 20
"""Maximum shares of one GPU: one slot for each."""
GPU_PERCENT: Final = f"{GROUP}/gpu-percent"
"""Percent of one GPU's compute that a share requests; not advertised, read by the ledger."""
GPU_MEMORY: Final = f"{GROUP}/gpu-memory"
"""Memory that a share requests, in bytes; not advertised, read by the ledger."""
MIG_PREFIX: Final = f"{GROUP}/mig-"
"""MIG slices, one resource for each profile; one device token is advertised for each slice."""
MIG_PROFILE: Final = "^([1-7]c[.])?[1-7]g[.][0-9]{1,3}gb([+-][a-z]+([.][a-z]+)?)?$"
"""Form of a profile's name in NVML, such as 1g.18gb or 1g.18gb+me."""

DEVICES_ANNOTATION: Final = f"{GROUP}/devices"
"""Annotation of a pod: its devices; only the Binding writes it."""
QUEUE_GATE: Final = f"{GROUP}/queue"
"""Scheduling gate of a standalone pod from its creation on; the queue removes it."""
PLACEMENT_ANNOTATION: Final = f"{GROUP}/placement"
"""Annotation of a standalone pod: the place at which the queue admitted it.

It is written as the gate is removed.
"""
PREEMPTION_ANNOTATION: Final = f"{GROUP}/preemption"
"""Annotation of a pending standalone pod: its victims, in the form of a GPUJob's status."""
POD_GROUP_LABEL: Final = f"{GROUP}/pod-group"
"""Label of standalone pods that start together: the name of their group."""
MIN_MEMBERS_ANNOTATION: Final = f"{GROUP}/min-members"
"""Annotation of a pod with that label: how many members start together."""
RECLAIM_ANNOTATION: Final = f"{GROUP}/reclaim-when-idle"
"""Annotation of a standalone pod: `true` allows its eviction when its GPUs are idle for long."""
CHECKPOINTED_AT_ANNOTATION: Final = f"{GROUP}/checkpointed-at"
"""Annotation of a GPUJob or a standalone pod: when it last saved its work, RFC 3339.

Its author writes it. A preemption is taken to lose the work since then.
"""
CREATED_BY_ANNOTATION: Final = f"{GROUP}/created-by"
"""Annotation of a GPUJob or a standalone pod: the user that created it.

The API server writes it at admission, and refuses another value.
"""
RESERVATION_ANNOTATION: Final = f"{GROUP}/reservation"
"""Annotation of a standalone pod: the GPUReservation of its namespace whose GPUs it may use."""
RERUN_OF_ANNOTATION: Final = f"{GROUP}/rerun-of"
"""Annotation of a GPUJob that is a rerun: name of the job that had ended."""
RERUN_INCOMPLETE_ANNOTATION: Final = f"{GROUP}/rerun-incomplete"
"""Annotation of a GPUJob that is a rerun, suspended until its scripts are copied: `true`."""
ISOLATION_ANNOTATION: Final = f"{GROUP}/isolation"
"""Annotation of a pod that requests a share.

Its value is `cooperative`, `limited` or `strict`, as in a GPUJob's share.
"""
SHARE_WITH_ANNOTATION: Final = f"{GROUP}/share-with"
"""Annotation of a pod that requests a share.

Its value is `anyone` or `namespace`, as in a GPUJob's share.
"""
GANG_MEMORY_ANNOTATION: Final = f"{GROUP}/gang-memory"
"""Annotation of a worker with its own pod: the attempt whose workers on one node have one /dev/shm.

Only the Binding writes it.
"""
DCGM_EXPORTER_ANNOTATION: Final = f"{GROUP}/dcgm-exporter"
"""Annotation of a pod in a namespace that the chart names: the port with DCGM's metrics."""
IDLE_CONDITION: Final = f"{GROUP}/Idle"
"""Condition of a pod: its GPUs are idle for longer than its cohort allows."""
ACCEPTANCE_ANNOTATION: Final = f"{GROUP}/acceptance-of"
"""Annotation of a GPUJob in ACCEPTANCE_NAMESPACE: the node whose GPUs it tests."""
FAILED_CONDITION: Final = f"{GROUP}/GpuFailed"
"""Condition of a pod: one of its GPUs failed."""
STRANDED_CONDITION: Final = f"{GROUP}/Stranded"
"""Condition of a pod that is not bound: it may run on only one node, which cannot take it."""
SIMULATED_IDLE_ANNOTATION: Final = f"simulated.{GROUP}/idle"
"""Annotation of a pod, `true`: simulated GPUs that it holds count as idle. Real ones do not."""
JOB_LABEL: Final = f"{GROUP}/job"
JOB_UID_LABEL: Final = f"{GROUP}/job-uid"
ATTEMPT_LABEL: Final = f"{GROUP}/attempt"
ROLE_LABEL: Final = f"{GROUP}/role"
"""Label of the pods of a job with roles."""
INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
"""The worker's index; in a pod with several workers, that of the first.

The Job controller sets it where the Job is indexed, gpupack elsewhere.
"""
WORKERS_ANNOTATION: Final = f"{GROUP}/workers"
"""Annotation of a pod that workers share: their indices, such as 0-3.

Containers of such a pod can open each other's GPUs. Only the Binding writes it.
"""

CONSUMED_REQUEST_ANNOTATION: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
"""Annotation of a worker: the ProvisioningRequest that provided its node.

The key is cluster-autoscaler's.
"""
PROVISIONING_CLASS_ANNOTATION: Final = "autoscaling.x-k8s.io/provisioning-class-name"
SAFE_TO_EVICT_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Annotation of a worker, `false`: cluster-autoscaler does not drain its node to remove it."""
DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
"""Annotation of a worker, `true`: Karpenter does not drain its node to replace or consolidate."""

WORKER_CONTAINER: Final = "worker"
SHM_VOLUME: Final = "shm"
"""Volume of a worker's pod for SHM_PATH, an emptyDir in memory; the agent finds it by this name."""
SHM_PATH: Final = "/dev/shm"  # noqa: S108 - in the pod
MAX_CONTAINER_NAME: Final = 63
MAX_INDEX_DIGITS: Final = 6
"""Maximum digits of a worker's index in the name of its container."""
RENDEZVOUS_PORT: Final = 29400

MPI_SECRET_TYPE: Final = f"{GROUP}/mpi"
MPI_SECRET_PREFIX: Final = "gpupack-mpi-"  # noqa: S105 - a name, not a secret
"""Prefix of the Secret with an attempt's key, which only the operator may create."""

SAVED_LOG_PREFIX: Final = "gpupack-log-"
"""Prefix of the ConfigMap with the last lines of an attempt with deleted pods; the UID follows."""

SAVED_LOG_KEY_PREFIX: Final = "worker-"
"""Prefix of a key in that ConfigMap; the worker's index follows."""

PLAN_ROUTE: Final = f"/{VERSION}/namespaces/{{namespace}}/plan"
"""Path with the job's namespace: the permission of a call is known before its body is read."""
TURNS_ROUTE: Final = f"/{VERSION}/turns"
PLAN_AUDIENCE: Final = "gpupack-extender"
"""Audience of the token for the plan API, so that the token is of no use elsewhere."""

OPERATOR_LEASE: Final = "gpupack-operator"
SCHEDULER_LEASE: Final = "gpupack-scheduler"
HEARTBEAT_LEASE_PREFIX: Final = "gpunode-"

MAX_JOB_NAME: Final = 52
"""Maximum length: a Job NAME-n and host names NAME-n-i must stay within 63 characters."""

EXTENDED_RESOURCE: Final = (
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    "/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
"""Form of an extended resource's name in Kubernetes, apart from its own prefixes."""

SHARED_SUFFIX: Final = ".shared"
"""Suffix of the name with which NVIDIA's plugin hands out replicas of GPUs (renameByDefault)."""

FOREIGN_RESOURCES: Final = (
    f"names of extended resources such as nvidia.com/gpu, none of {GROUP}, separated by commas"
)
"""Form of `foreign_resources`, for a message."""


def foreign_resources(text: str) -> tuple[str, ...]:
    """Parse the names of resources that other device plugins hand out.

    Raises:
        ValueError: a name is not valid, or is in gpupack's group.
    """
    resources = tuple(name.strip() for name in text.split(","))
    for name in resources:
        if not re.fullmatch(EXTENDED_RESOURCE, name) or name.startswith(f"{GROUP}/"):
            raise ValueError(name)
    return tuple(dict.fromkeys(resources))


def saved_log(uid: str) -> str:
    """Return the ConfigMap with the last lines of an attempt whose pods were deleted."""
    return f"{SAVED_LOG_PREFIX}{uid}"


def mig_resource(profile: str) -> str:
    """Return the resource of a MIG profile; a plus becomes a dot, as in NVIDIA's plugin."""
    return f"{MIG_PREFIX}{profile.replace('+', '.')}"


def mig_profile(resource: str) -> str:
    """Return the profile of a MIG resource; empty for any other resource."""
    if not resource.startswith(MIG_PREFIX):
        return ""
    profile = resource.removeprefix(MIG_PREFIX).replace("gb.", "gb+", 1)
    return profile if re.fullmatch(MIG_PROFILE, profile) else ""


def job_name(gpujob: str, *, attempt: int) -> str:
    """Return the name of the Job that runs an attempt."""
    return f"{gpujob}-{attempt}"


def nodes_request(gpujob: str, *, number: int) -> str:
    """Return the name of the ProvisioningRequest and of the PodTemplate that request nodes."""
    return f"{gpujob}-nodes-{number}"


def extra_job_name(gpujob: str, *, attempt: int, worker: int) -> str:
    """Return the name of an extra worker's Job; no attempt of a GPUJob has such a name."""
    return f"{job_name(gpujob, attempt=attempt)}-x{worker}"


def pod_job_name(gpujob: str, *, attempt: int, worker: int) -> str:
    """Return the name of the Job of one pod with shared workers, by the pod's first worker."""
    return f"{job_name(gpujob, attempt=attempt)}-p{worker}"


def worker_container(base: str, worker: int) -> str:
    """Return a worker's container name in a shared pod; base is the template's name."""
    suffix = f"-{worker}"
    return base[: MAX_CONTAINER_NAME - len(suffix)] + suffix


def worker_of_container(name: str) -> int | None:
    """Return the worker's index from such a container's name; None: it has none."""
    base, _, text = name.rpartition("-")
    is_index = bool(base) and text.isdecimal() and len(text) <= MAX_INDEX_DIGITS
    return int(text) if is_index else None


def mpi_secret(uid: str, *, attempt: int) -> str:
    """Return the name of the Secret with the key of an attempt's workers, by the GPUJob's UID.

    The GPUJob's name is not used: the Secret of a predecessor may still be terminating.
    """
    return f"{MPI_SECRET_PREFIX}{uid}-{attempt}"


def heartbeat_lease(node: str) -> str:
    """Return the name of the Lease that a node's agent renews as its heartbeat."""
    return f"{HEARTBEAT_LEASE_PREFIX}{node}"
