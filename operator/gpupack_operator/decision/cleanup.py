# SPDX-License-Identifier: Apache-2.0
"""Decision which Jobs of ended attempts stay for their logs, and which are deleted.

The Jobs of the last failed attempts stay until the GPUJob is deleted, as Kubernetes' own do, and
with them their failed pods and these pods' logs. Such pods have ended: they hold no GPUs and count
against no quota of resources. A quota of objects (count/jobs.batch, count/pods) does count them and
their Jobs, so none stays while an attempt could not be created. Every other Job is deleted with its
pods.

Where workers share pods, a Job does not see that one worker failed while others still run. So the
operator ends these pods: a pod in which a worker has ended stays, and its kubelet ends all its
containers; other pods are deleted with their Jobs, as the controller of a single Job would do.
"""

import datetime as dt
from typing import Final

from gpupack_crds.gpujob_status import GpuJobStatus, Outcome
from gpupack_kubeclient.objects import Job, Pod
from gpupack_operator.decision import times
from gpupack_operator.decision.model import Action, DeleteJob, EndPod, Observation, StopJob
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.workers import has_terminated_container
from gpupack_operator.manifests.limits import gpu_containers, limits
from gpupack_operator.manifests.owner import attempt_of, index_of, is_controlled_by, is_gang_job

FAILED_ATTEMPTS_KEPT = 2

END_NOW: Final = 1
"""activeDeadlineSeconds of a pod that must end: the smallest valid value."""

ENDS = frozenset({"Complete", "Failed", "FailureTarget"})
"""Conditions of a Job that creates no more pods; its running pods are being deleted."""

CONTROLLER_SECONDS = 10.0
"""How long the Job controller may take to end a Job by itself. Suspending a Job deletes all pods
that its controller does not consider ended, and with them the logs that show why the job failed.
"""


def retained_jobs(observation: Observation, status: GpuJobStatus) -> frozenset[str]:
    """Return the names of the Jobs that stay: of the last failed attempts, and of the final one."""
    if _was_forbidden(status):
        return frozenset()
    failed = [attempt.number for attempt in status.attempts if attempt.outcome == "Failed"]
    numbers = failed[-FAILED_ATTEMPTS_KEPT:] + [status.attempt] * status.finished
    return frozenset(
        job.metadata.name
        for job in observation.jobs
        if attempt_of(job) in numbers and is_gang_job(job, observation.job)
    )


def clear_jobs(
    observation: Observation, status: GpuJobStatus
) -> tuple[tuple[Action, ...], dt.datetime | None]:
    """Delete Jobs that need not stay, stop those that do not end, and return when to look again."""
    kept = retained_jobs(observation, status)
    actions: list[Action] = []
    looks: list[dt.datetime] = []
    for job in observation.jobs:
        if job.metadata.name not in kept:
            actions += delete_job(job)
        elif not _is_at_rest(job) and not _ends_well(job, observation, status):
            ends_at = _ended_at(job, status, observation.now)
            stop_at = times.after(ends_at, _end_seconds(job, observation))
            if stop_at <= observation.now:
                actions.append(StopJob(name=job.metadata.name))
                continue
            looks.append(stop_at)
            if _outcome(job, status) == "Failed":
                actions += end_pods(job, observation)
    return tuple(actions), times.earliest(*looks)


def end_pods(job: Job, observation: Observation) -> tuple[Action, ...]:
    """End the running pods of a failed attempt's Job if its controller does not end them."""
    if not _has_one_pod(job):
        return ()
    telling = [pod for pod in _pods_of(job, observation) if has_terminated_container(pod)]
    if not telling:
        return delete_job(job)
    return tuple(
        EndPod(name=pod.metadata.name, uid=pod.metadata.uid)
        for pod in telling
        if not pod.finished and pod.spec.active_deadline_seconds != END_NOW
    )


def are_all_cleared(observation: Observation, status: GpuJobStatus) -> bool:
    """Tell whether no Job of an earlier attempt can create a pod or is being deleted."""
    kept = retained_jobs(observation, status)
    return all(
        job.metadata.name in kept and _is_at_rest(job) and job.metadata.deletion_timestamp is None
        for job in observation.jobs
    )


def delete_job(job: Job) -> tuple[Action, ...]:
    """Delete a Job, unless its deletion has begun."""
    if job.metadata.deletion_timestamp is not None:
        return ()
    number = attempt_of(job)
    return (DeleteJob(name=job.metadata.name, uid=job.metadata.uid, attempt=number),)


def _was_forbidden(status: GpuJobStatus) -> bool:
    """Tell whether the last attempt could not be created, or the next cannot be."""
    reasons = {status.reason, *(attempt.reason for attempt in status.attempts[-1:])}
    return not status.finished and JobReason.CREATION_FORBIDDEN in reasons


def _ended_at(job: Job, status: GpuJobStatus, otherwise: dt.datetime) -> dt.datetime:
    number = attempt_of(job)
    ends = (each.finished_at for each in status.attempts if each.number == number)
    ended_at = next(ends, None) or status.finished_at
    return times.read(ended_at) if ended_at else otherwise


def _ends_well(job: Job, observation: Observation, status: GpuJobStatus) -> bool:
    """Tell whether all pods of a succeeded attempt ended; then the controller completes the Job."""
    return _outcome(job, status) == "Succeeded" and all(
        pod.finished for pod in observation.pods if is_controlled_by(pod, job)
    )


def _outcome(job: Job, status: GpuJobStatus) -> Outcome | None:
    number = attempt_of(job)
    return next((each.outcome for each in status.attempts if each.number == number), None)


def _end_seconds(job: Job, observation: Observation) -> float:
    """Return how long a Job may take to end.

    A pod that the operator ends has its grace period first.
    """
    pods = _pods_of(job, observation) if _has_one_pod(job) else []
    graces = [
        pod.spec.termination_grace_period_seconds for pod in pods if has_terminated_container(pod)
    ]
    return CONTROLLER_SECONDS + max(graces, default=0)


def _has_one_pod(job: Job) -> bool:
    """Tell whether the Job is that of one pod of a gang: then it has an index."""
    return index_of(job) >= 0


def _pods_of(job: Job, observation: Observation) -> list[Pod]:
    """Return the pods of such a Job; pods that do not request a worker's GPUs are not its own."""
    index = index_of(job)
    of_gpus = limits(observation.job.spec.of_worker(index))
    return [
        pod
        for pod in observation.pods
        if is_controlled_by(pod, job) and index_of(pod) == index and gpu_containers(pod, of_gpus)
    ]


def _is_at_rest(job: Job) -> bool:
    over = any(found.type in ENDS and found.status == "True" for found in job.status.conditions)
    return over or job.spec.suspend or job.metadata.deletion_timestamp is not None
