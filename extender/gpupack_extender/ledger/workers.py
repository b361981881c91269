# SPDX-License-Identifier: Apache-2.0
"""Which worker of which attempt a pod is.

Labels alone can be written by anyone. A pod is a worker only if the Job of that attempt controls
it, and the key holds the namespace: nobody can take a place of another namespace's job.
"""

import dataclasses

import gpupack_core as core
from gpupack_crds import names
from gpupack_kube import objects


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of one GPUJob."""

    namespace: str
    job: str
    job_uid: str
    number: int

    def __str__(self) -> str:
        return f"attempt {self.number} of GPUJob {self.namespace}/{self.job}"


@dataclasses.dataclass(frozen=True, slots=True)
class Worker:
    """One worker of an attempt, whether or not its pod is there."""

    attempt: Attempt
    index: int

    @property
    def holder(self) -> core.Holder:
        """The name under which core's books know it."""
        a = self.attempt
        return core.Holder(f"worker/{a.namespace}/{a.job}/{a.job_uid}/{a.number}/{self.index}")


def pod_holder(uid: str) -> core.Holder:
    """The name under which core's books know a pod."""
    return core.Holder(f"pod/{uid}")


def ticket_holder(node: core.NodeName) -> core.Holder:
    """The name under which core's books know a node's pods that hold tickets alone."""
    return core.Holder(f"tickets/{node}")


def worker_of(pod: objects.Pod) -> Worker | None:
    """Which worker the pod is; None for a pod of its own."""
    labels = pod.metadata.labels
    try:
        attempt = Attempt(
            namespace=pod.metadata.namespace,
            job=labels[names.JOB_LABEL],
            job_uid=labels[names.JOB_UID_LABEL],
            number=int(labels[names.ATTEMPT_LABEL]),
        )
        worker = Worker(attempt, int(labels[names.INDEX_LABEL]))
    except (KeyError, ValueError):
        return None
    return worker if _is_controlled_by_job_of(pod, attempt) else None


def _is_controlled_by_job_of(pod: objects.Pod, attempt: Attempt) -> bool:
    name = names.job_name(attempt.job, attempt=attempt.number)
    owners = pod.metadata.owner_references
    return any(o.controller and (o.kind, o.name) == ("Job", name) for o in owners)
