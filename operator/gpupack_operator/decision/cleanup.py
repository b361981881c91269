# SPDX-License-Identifier: Apache-2.0
"""Jobs of attempts that have ended: which stay to be read, which go.

The Jobs of the last failed attempts stay until the GPUJob goes, as Kubernetes' own do, and with
them their failed pods and these pods' logs. Such pods have ended: they hold no GPUs and count
against no quota of resources. A quota of objects (count/jobs.batch, count/pods) counts them and
their Jobs all the same: so nothing stays while an attempt could not be created. Every other Job is
deleted with its pods.
"""

import datetime as dt

from gpupack_crds import names
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_kube.objects import Job
from gpupack_operator.decision import times
from gpupack_operator.decision.model import Action, DeleteJob, Observation, StopJob
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.manifests.owner import attempt_of, is_controlled_by

FAILED_JOBS_KEPT = 2

ENDS = frozenset({"Complete", "Failed", "FailureTarget"})
"""Conditions of a Job that makes no more pods; those that run are being deleted."""

CONTROLLER_SECONDS = 10.0
"""How long the Job controller may take to end a Job by itself. Stopping one deletes all pods that
have not ended in its eyes, and with them the logs that say why the job failed."""


def retained(observation: Observation, status: GpuJobStatus) -> frozenset[str]:
    """Names of the Jobs that stay: of the last failed attempts, and of the one that ended all."""
    if _was_forbidden(status):
        return frozenset()
    failed = [attempt.number for attempt in status.attempts if attempt.outcome == "Failed"]
    numbers = failed[-FAILED_JOBS_KEPT:] + [status.attempt] * status.finished
    name = observation.job.metadata.name
    return frozenset(names.job_name(name, attempt=number) for number in numbers)


def clearing(
    observation: Observation, status: GpuJobStatus
) -> tuple[tuple[Action, ...], dt.datetime | None]:
    """Delete what need not stay and stop what does not end by itself; when to look again."""
    kept = retained(observation, status)
    actions: list[Action] = []
    looks: list[dt.datetime] = []
    for job in observation.jobs:
        if job.metadata.name not in kept:
            actions += deletion(job)
        elif not _at_rest(job) and not _ends_well(job, observation, status):
            stop_at = times.after(_ended_at(job, status, observation.now), CONTROLLER_SECONDS)
            if stop_at <= observation.now:
                actions.append(StopJob(name=job.metadata.name))
            else:
                looks.append(stop_at)
    return tuple(actions), times.earliest(*looks)


def all_cleared(observation: Observation, status: GpuJobStatus) -> bool:
    """Whether no Job of an earlier attempt can make a pod any more, or is on its way out."""
    kept = retained(observation, status)
    return all(
        job.metadata.name in kept and _at_rest(job) and job.metadata.deletion_timestamp is None
        for job in observation.jobs
    )


def deletion(job: Job) -> tuple[Action, ...]:
    """Delete a Job, unless that is under way."""
    if job.metadata.deletion_timestamp is not None:
        return ()
    return (DeleteJob(name=job.metadata.name, uid=job.metadata.uid),)


def _was_forbidden(status: GpuJobStatus) -> bool:
    """Whether the last attempt could not be created, or the next cannot be."""
    reasons = {status.reason, *(attempt.reason for attempt in status.attempts[-1:])}
    return not status.finished and JobReason.CREATION_FORBIDDEN in reasons


def _ended_at(job: Job, status: GpuJobStatus, otherwise: dt.datetime) -> dt.datetime:
    number = attempt_of(job)
    ends = (each.finished_at for each in status.attempts if each.number == number)
    ended_at = next(ends, None) or status.finished_at
    return times.read(ended_at) if ended_at else otherwise


def _ends_well(job: Job, observation: Observation, status: GpuJobStatus) -> bool:
    """Whether all its pods have succeeded: its controller says so sooner or later."""
    number = attempt_of(job)
    outcome = next((each.outcome for each in status.attempts if each.number == number), None)
    return outcome == "Succeeded" and all(
        pod.finished for pod in observation.pods if is_controlled_by(pod, job)
    )


def _at_rest(job: Job) -> bool:
    over = any(found.type in ENDS and found.status == "True" for found in job.status.conditions)
    return over or job.spec.suspend or job.metadata.deletion_timestamp is not None
