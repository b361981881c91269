# SPDX-License-Identifier: Apache-2.0
"""The worker and the attempt that a pod belongs to.

A pod is a worker if its labels say so and its owner reference names the right Job as its
controller: the Job of that attempt, or the Job that such a worker, or a pod of several workers, has
for itself. A pod of several workers has the index of the first. Its key contains the namespace and
the GPUJob's UID: it gets a place only where that very GPUJob of its own namespace has one.

The namespace is the boundary of trust. The pod's author writes labels and owner references, and the
Job's UID is not known here. A user who may create pods in a namespace can take the place of a
worker there, with a pod that requests the same GPUs (`mismatch`), but no place of another
namespace.
"""

import dataclasses
from typing import Final

from gpupack_crds import names
from gpupack_crds.gpujob import MAX_WORKERS
from gpupack_kubeclient import objects
from gpupack_placement import Holder, NodeName

_LINGERING = "lingering/"

MAX_ATTEMPTS: Final = 2**31 - 1
"""Largest accepted attempt number of a GPUJob; other components store it in at most 64 bits."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKey:
    """One attempt of one GPUJob."""

    namespace: str
    job: str
    job_uid: str
    number: int

    def __str__(self) -> str:
        return f"attempt {self.number} of GPUJob {self.namespace}/{self.job}"


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerKey:
    """One worker of an attempt, whether or not its pod is there."""

    attempt: AttemptKey
    index: int

    def peer(self, index: int) -> "WorkerKey":
        """Return another worker of the same attempt."""
        return WorkerKey(self.attempt, index)

    @property
    def holder(self) -> Holder:
        """Return the name of the worker in placement's cluster."""
        a = self.attempt
        return Holder(f"worker/{a.namespace}/{a.job}/{a.job_uid}/{a.number}/{self.index}")


def pod_holder(uid: str) -> Holder:
    """Return the name of a pod in placement's cluster."""
    return Holder(f"pod/{uid}")


def token_holder(node: NodeName) -> Holder:
    """Return the name, in placement's cluster, of a node's pods that hold device tokens only."""
    return Holder(f"tickets/{node}")


def terminating_holder(node: NodeName, uid: str) -> Holder:
    """Return the name, in placement's cluster, of a pod that is gone and whose processes are not.

    The name contains the node: only an agent's report says that no other node has the same UID.
    """
    return Holder(f"{_LINGERING}{node}/{uid}")


def is_terminating(holder: Holder) -> bool:
    """Tell whether `lingering_holder` made the name."""
    return holder.startswith(_LINGERING)


def worker_of(pod: objects.Object) -> WorkerKey | None:
    """Return the worker that the pod is; None for a standalone pod."""
    labels = pod.metadata.labels
    try:
        attempt = AttemptKey(
            namespace=pod.metadata.namespace,
            job=labels[names.JOB_LABEL],
            job_uid=labels[names.JOB_UID_LABEL],
            number=_number(labels[names.ATTEMPT_LABEL]),
        )
        worker = WorkerKey(attempt, _number(labels[names.INDEX_LABEL]))
    except (KeyError, ValueError):
        return None
    if not (0 < attempt.number <= MAX_ATTEMPTS and worker.index < MAX_WORKERS):
        return None
    return worker if _names_its_job(pod, worker) else None


def _number(label: str) -> int:
    """Parse a number as gpupack writes it; `int` alone would also accept `1_0` and `-1`."""
    if not label.isdecimal():
        raise ValueError(label)
    return int(label)


def _names_its_job(pod: objects.Object, worker: WorkerKey) -> bool:
    attempt = worker.attempt
    of_the_gang = names.job_name(attempt.job, attempt=attempt.number)
    of_its_own = names.extra_job_name(attempt.job, attempt=attempt.number, worker=worker.index)
    of_its_pod = names.pod_job_name(attempt.job, attempt=attempt.number, worker=worker.index)
    jobs = {("batch/v1", "Job", name) for name in (of_the_gang, of_its_own, of_its_pod)}
    owners = pod.metadata.owner_references
    return any(o.controller and (o.api_version, o.kind, o.name) in jobs for o in owners)
