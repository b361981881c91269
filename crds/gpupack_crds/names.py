# SPDX-License-Identifier: Apache-2.0
"""Every name that more than one part spells."""

import re
from typing import Final

GROUP: Final = "gpupack.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
API_PREFIX: Final = f"/apis/{API_VERSION}"

SCHEDULER_NAME: Final = "gpupack"
SYSTEM_NAMESPACE: Final = "gpupack-system"
ACCEPTANCE_NAMESPACE: Final = "gpupack-acceptance"
"""Where burn-ins run: GPUJobs there, and no others, get GPUs that are in acceptance."""

GPU: Final = f"{GROUP}/gpu"
"""Whole GPUs; advertised by the agent's device plugin, one ticket a GPU."""
GPU_SHARE: Final = f"{GROUP}/gpu-share"
"""A share of one GPU; advertised by the device plugin, several slots a GPU."""
SHARE_SLOTS_PER_GPU: Final = 20
"""How many shares one GPU can have at most: one slot for each."""
GPU_PERCENT: Final = f"{GROUP}/gpu-percent"
"""Percent of one GPU's compute that a share asks for; advertised by nobody, read by the ledger."""
GPU_MEMORY: Final = f"{GROUP}/gpu-memory"
"""Memory that a share asks for, in bytes; advertised by nobody, read by the ledger."""
MIG_PREFIX: Final = f"{GROUP}/mig-"
"""MIG slices, one resource for each profile; the device plugin advertises one ticket a slice."""
MIG_PROFILE: Final = "^([1-7]c[.])?[1-7]g[.][0-9]{1,3}gb([+-][a-z]+([.][a-z]+)?)?$"
"""A profile's name as NVML has it, such as 1g.18gb or 1g.18gb+me."""

DEVICES_ANNOTATION: Final = f"{GROUP}/devices"
"""On a pod: its devices, written by the Binding and by nothing else."""
QUEUE_GATE: Final = f"{GROUP}/queue"
"""On a pod of its own, from its creation on: a scheduling gate that the queue opens."""
PLACE_ANNOTATION: Final = f"{GROUP}/place"
"""On a pod of its own: where the queue let it in, written as its gate is opened."""
PREEMPTION_ANNOTATION: Final = f"{GROUP}/preemption"
"""On a pod of its own that waits: who is stopped for it, as a GPUJob's status has it."""
RECLAIM_ANNOTATION: Final = f"{GROUP}/reclaim-when-idle"
"""On a pod of its own: `true` where it may be evicted when its GPUs are idle for long."""
RERUN_OF_ANNOTATION: Final = f"{GROUP}/rerun-of"
"""On a GPUJob that was made as a rerun: the name of the one that had ended."""
RERUN_INCOMPLETE_ANNOTATION: Final = f"{GROUP}/rerun-incomplete"
"""On a GPUJob that was made as a rerun, suspended until its scripts are copied: `true`."""
ISOLATION_ANNOTATION: Final = f"{GROUP}/isolation"
"""On a pod that asks for a share: `cooperative`, `limited` or `strict`, as of a GPUJob's share."""
SHARE_WITH_ANNOTATION: Final = f"{GROUP}/share-with"
"""On a pod that asks for a share: `anyone` or `namespace`, likewise."""
GANG_MEMORY_ANNOTATION: Final = f"{GROUP}/gang-memory"
"""On a worker with a pod of its own: the attempt whose workers on one node have one /dev/shm.
Written by the Binding and by nothing else."""
DCGM_EXPORTER_ANNOTATION: Final = f"{GROUP}/dcgm-exporter"
"""On a pod in a namespace that the chart names: the port where it shows DCGM's figures."""
IDLE_CONDITION: Final = f"{GROUP}/Idle"
"""Of a pod: whether its GPUs are idle for longer than its cohort allows."""
ACCEPTANCE_ANNOTATION: Final = f"{GROUP}/acceptance-of"
"""On a GPUJob of that namespace: the node whose GPUs it tries."""
FAILED_CONDITION: Final = f"{GROUP}/GpuFailed"
"""Of a pod: whether a GPU of it failed."""
STRANDED_CONDITION: Final = f"{GROUP}/Stranded"
"""Of a pod that is not bound: whether it may be on one node alone, which cannot take it."""
SIMULATED_IDLE_ANNOTATION: Final = f"simulated.{GROUP}/idle"
"""On a pod, `true`: simulated GPUs that it holds pass for idle. Real ones do not."""
JOB_LABEL: Final = f"{GROUP}/job"
JOB_UID_LABEL: Final = f"{GROUP}/job-uid"
ATTEMPT_LABEL: Final = f"{GROUP}/attempt"
INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
"""The worker's index; of a pod with several workers, that of the first. The Job controller sets it
where the Job is indexed, we do elsewhere."""
WORKERS_ANNOTATION: Final = f"{GROUP}/workers"
"""On a pod that workers share: their indices, such as 0-3. Containers of such a pod can open each
other's GPUs. Written by the Binding and by nothing else."""

CONSUMED_REQUEST_ANNOTATION: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
"""On a worker: the ProvisioningRequest that brought its node; cluster-autoscaler's own name."""
PROVISIONING_CLASS_ANNOTATION: Final = "autoscaling.x-k8s.io/provisioning-class-name"
SAFE_TO_EVICT_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""On a worker, `false`: cluster-autoscaler does not drain its node to remove it."""
DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
"""On a worker, `true`: Karpenter does not drain its node to consolidate or replace it."""

WORKER_CONTAINER: Final = "worker"
SHM_VOLUME: Final = "shm"
"""Volume of a worker's pod for SHM_PATH, an emptyDir in memory; the agent finds it by this name."""
SHM_PATH: Final = "/dev/shm"  # noqa: S108 - in the pod
MAX_CONTAINER_NAME: Final = 63
MAX_INDEX_DIGITS: Final = 6
"""Of a worker's index in the name of its container."""
RENDEZVOUS_PORT: Final = 29400

MPI_SECRET_TYPE: Final = f"{GROUP}/mpi"
MPI_SECRET_PREFIX: Final = "gpupack-mpi-"  # noqa: S105 - a name, not a secret
"""Of the Secret with an attempt's key, which the operator alone may make."""

SAVED_LOG_PREFIX: Final = "gpupack-log-"
"""Of the ConfigMap with the last lines of an attempt whose pods were deleted; the UID follows."""

SAVED_LOG_KEY_PREFIX: Final = "worker-"
"""Of a key of that ConfigMap; the worker's index follows."""

PLAN_ROUTE: Final = f"/{VERSION}/namespaces/{{namespace}}/plan"
"""The namespace is the job's: what right a caller needs is known before the body is read."""
TURNS_ROUTE: Final = f"/{VERSION}/turns"
PLAN_AUDIENCE: Final = "gpupack-extender"
"""Audience of the token that the plan API takes, so that it opens nothing else."""

OPERATOR_LEASE: Final = "gpupack-operator"
SCHEDULER_LEASE: Final = "gpupack-scheduler"
HEARTBEAT_LEASE_PREFIX: Final = "gpunode-"

MAX_JOB_NAME: Final = 52
"""A Job NAME-n and its pods' host names NAME-n-i must stay within 63 characters."""

EXTENDED_RESOURCE: Final = (
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    "/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
"""What Kubernetes takes for the name of an extended resource, apart from its own prefixes."""

SHARED_SUFFIX: Final = ".shared"
"""Ends the name by which NVIDIA's plugin hands out replicas of GPUs (renameByDefault)."""

FOREIGN_RESOURCES: Final = (
    f"names of extended resources such as nvidia.com/gpu, none of {GROUP}, separated by commas"
)
"""What `foreign_resources` reads, for a message."""


def foreign_resources(text: str) -> tuple[str, ...]:
    """Read the names of resources that other device plugins hand out.

    Raises:
        ValueError: one is no such name, or is of our own group.
    """
    resources = tuple(name.strip() for name in text.split(","))
    for name in resources:
        if not re.fullmatch(EXTENDED_RESOURCE, name) or name.startswith(f"{GROUP}/"):
            raise ValueError(name)
    return tuple(dict.fromkeys(resources))


def saved_log(uid: str) -> str:
    """The ConfigMap with the last lines of a GPUJob's attempt whose pods were deleted."""
    return f"{SAVED_LOG_PREFIX}{uid}"


def mig_resource(profile: str) -> str:
    """The resource of a MIG profile; a plus is a dot there, as NVIDIA's plugin has it."""
    return f"{MIG_PREFIX}{profile.replace('+', '.')}"


def mig_profile(resource: str) -> str:
    """The profile of such a resource; empty where it is none."""
    if not resource.startswith(MIG_PREFIX):
        return ""
    profile = resource.removeprefix(MIG_PREFIX).replace("gb.", "gb+", 1)
    return profile if re.fullmatch(MIG_PROFILE, profile) else ""


def job_name(gpujob: str, *, attempt: int) -> str:
    """Name of the Job that runs an attempt."""
    return f"{gpujob}-{attempt}"


def nodes_request(gpujob: str, *, number: int) -> str:
    """Name of the ProvisioningRequest, and of the PodTemplate, by which nodes are asked for."""
    return f"{gpujob}-nodes-{number}"


def extra_job_name(gpujob: str, *, attempt: int, worker: int) -> str:
    """Name of the Job of one worker beyond the least; no attempt of a GPUJob has such a name."""
    return f"{job_name(gpujob, attempt=attempt)}-x{worker}"


def pod_job_name(gpujob: str, *, attempt: int, worker: int) -> str:
    """Name of the Job of one pod of a gang whose pods are shared; by the pod's first worker."""
    return f"{job_name(gpujob, attempt=attempt)}-p{worker}"


def worker_container(base: str, worker: int) -> str:
    """Name of a worker's container in a pod that workers share; base is the template's name."""
    suffix = f"-{worker}"
    return base[: MAX_CONTAINER_NAME - len(suffix)] + suffix


def worker_of_container(name: str) -> int | None:
    """Read the worker's index in the name of such a container; None: it has none."""
    base, _, text = name.rpartition("-")
    is_index = bool(base) and text.isdecimal() and len(text) <= MAX_INDEX_DIGITS
    return int(text) if is_index else None


def mpi_secret(uid: str, *, attempt: int) -> str:
    """Name of the Secret with the key of an attempt's workers; by the GPUJob's UID.

    Not by its name: that of a predecessor may still be on its way out.
    """
    return f"{MPI_SECRET_PREFIX}{uid}-{attempt}"


def heartbeat_lease(node: str) -> str:
    """Name of the Lease by which a node's agent says that it lives."""
    return f"{HEARTBEAT_LEASE_PREFIX}{node}"
