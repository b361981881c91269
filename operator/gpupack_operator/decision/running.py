# SPDX-License-Identifier: Apache-2.0
"""GPUJob with an attempt that has not ended: continue, or end it and decide what follows."""

import dataclasses
import datetime as dt
import math

from msgspec import structs

from gpupack_crds.gpujob_status import Attempt, GpuJobStatus
from gpupack_crds.times import format_time
from gpupack_kubeclient.objects import Job
from gpupack_operator.decision import (
    attempts,
    ended_workers,
    extra_workers,
    finished,
    image_pulls,
    outcome,
    readings,
    restarts,
    results,
    times,
)
from gpupack_operator.decision.cleanup import delete_job, end_pods
from gpupack_operator.decision.conditions import Type, Writer, get
from gpupack_operator.decision.model import (
    Action,
    AttemptMove,
    CreateChildren,
    CreationFailure,
    Decision,
    NameInUse,
    Observation,
    SetDeadline,
    StopJob,
)
from gpupack_operator.decision.preemption_verdicts import preemption_verdict
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.restarts import Step
from gpupack_operator.decision.revisions import held_since, own_place_reservation, revision_verdict
from gpupack_operator.decision.saved_logs import logs_to_save
from gpupack_operator.decision.view import AttemptView, Verdict, view
from gpupack_operator.decision.workers import may_run
from gpupack_operator.manifests.owner import is_controlled_by

DEADLINE_SLACK_SECONDS = 2.0
"""Both deadlines have whole seconds: a Job's deadline that differs by less is considered equal."""

STARTING_MESSAGE = "not all workers have started"
"""Has no count: a thousand workers would cause a thousand writes."""

NAME_LOOK_SECONDS = 1.0
"""Interval between checks whether a child of a deleted GPUJob of the same name is gone."""

JOB_GOING_SECONDS = 5.0
"""Interval between checks whether a deleted Job is gone, in case no event reports it."""


def decide(
    observation: Observation, status: GpuJobStatus, attempt: Attempt, write: Writer
) -> Decision:
    """Judge the attempt and act on it."""
    seen = view(observation, status, attempt)
    verdict, again_at = _verdict(observation, seen)
    if verdict:
        decision = _ended(observation, status, seen, verdict, write)
        return dataclasses.replace(decision, logs=logs_to_save(seen, verdict))
    if seen.missing_jobs:
        return _created(observation, status, seen, again_at)
    status = _progress(seen, status, write)
    ends = ended_workers.record_ended_workers(seen, status.ended_workers)
    status = structs.replace(status, ended_workers=ends.ended)
    others = extra_workers.decide(observation, status, seen)
    return Decision(
        status=others.status,
        actions=(*(a for job in seen.jobs for a in _deadline(seen, job)), *others.actions),
        again_at=times.earliest(again_at, others.again_at, ends.again_at),
    )


def _created(
    observation: Observation, status: GpuJobStatus, seen: AttemptView, again_at: dt.datetime | None
) -> Decision:
    """Create the Jobs, after pods of Jobs that were deleted before any worker started are gone.

    All workers of the new Jobs start from the beginning. Where each pod has its own Job, some of
    these may exist already.
    """
    status = structs.replace(status, ended_workers=None)
    if isinstance(observation.answer, NameInUse):
        look_at = times.after(observation.now, NAME_LOOK_SECONDS)
        return Decision(status=status, again_at=times.earliest(again_at, look_at))
    others = (p for p in observation.pods if not any(is_controlled_by(p, j) for j in seen.jobs))
    if any(may_run(pod, observation.silent_nodes) for pod in others):
        look_at = times.after(observation.now, JOB_GOING_SECONDS)
        return Decision(status=status, again_at=times.earliest(again_at, look_at))
    return Decision(status=status, actions=(creation(seen),), again_at=again_at)


def creation(seen: AttemptView) -> CreateChildren:
    """Return the creation of the attempt's objects.

    The Job gets the time left until the deadline.
    """
    left = None
    if seen.deadline is not None:
        left = max(1, math.ceil((seen.deadline - seen.now).total_seconds()) + 1)
    return CreateChildren(attempt=seen.number, deadline_seconds=left)


def _verdict(
    observation: Observation, seen: AttemptView
) -> tuple[Verdict | None, dt.datetime | None]:
    if isinstance(observation.answer, CreationFailure):
        return _refused(observation.answer), None
    verdict, again_at = outcome.judge(seen)
    if observation.job.spec.suspend and (verdict is None or verdict.outcome != "Succeeded"):
        message = "spec.suspend is true"
        return Verdict(outcome="Suspended", reason=JobReason.SUSPENDED, message=message), None
    moved = observation.move
    if verdict is None and moved is not None and observation.now < moved.until:
        return _moved(moved), None
    if verdict is None and observation.preemption is not None:
        return preemption_verdict(observation, observation.preemption), None
    if verdict is None:
        found, look_at = revision_verdict(observation.job, seen)
        return found, times.earliest(again_at, look_at)
    return verdict, again_at


def _moved(moved: AttemptMove) -> Verdict:
    """Return the verdict of an attempt that continues on another node."""
    reason = moved.preemption.victims[0].reason
    why = f"to free GPUs for {moved.why} there"
    if reason == "Maintenance":
        why = f"for its maintenance: {moved.why}"
    return Verdict(outcome="Moved", reason=reason, message=f"moved from node {moved.node} {why}")


def _refused(answer: CreationFailure) -> Verdict:
    return Verdict(
        outcome="Failed" if answer.permanent else "Infrastructure",
        reason=answer.reason,
        message=answer.message,
        permanent=answer.permanent,
    )


def _progress(seen: AttemptView, status: GpuJobStatus, write: Writer) -> GpuJobStatus:
    if seen.running:
        return status
    if seen.started < seen.count:
        trouble = outcome.not_starting(seen)
        if trouble is None:
            message = STARTING_MESSAGE + seen.foreign_pods_message + seen.excess_message
            return write.set(status, Type.RUNNING, "False", JobReason.STARTING, message)
        verdict = trouble.verdict
        message = verdict.message
        if verdict.reason == JobReason.IMAGE_PULL_FAILED:
            message += image_pulls.describe_hold(seen.earlier, format_time(trouble.due))
        return write.set(status, Type.RUNNING, "False", verdict.reason, message)
    message = f"attempt {seen.number} on {status.nodes}"
    return write.set(status, Type.RUNNING, "True", JobReason.ALL_WORKERS_RUNNING, message)


def _deadline(seen: AttemptView, job: Job) -> tuple[Action, ...]:
    """Adapt the Job's deadline to that of the GPUJob, which may be edited while the job runs."""
    started, has = job.status.start_time, job.spec.active_deadline_seconds
    if seen.deadline is None:
        return () if has is None else (SetDeadline(name=job.metadata.name, seconds=None),)
    if started is None:
        return ()
    wanted = max(1, math.ceil((seen.deadline - started).total_seconds()) + 1)
    if has is not None and abs(has - wanted) <= DEADLINE_SLACK_SECONDS:
        return ()
    return (SetDeadline(name=job.metadata.name, seconds=wanted),)


def _ended(
    observation: Observation,
    status: GpuJobStatus,
    seen: AttemptView,
    verdict: Verdict,
    write: Writer,
) -> Decision:
    status = attempts.end_attempt(status, verdict, observation.now, ended_at=seen.ended_at)
    if verdict.outcome == "Succeeded":
        return _succeeded(observation, status, seen, verdict, write)
    step = restarts.next_step(verdict, seen, status)
    if step is Step.GIVE_UP:
        return _failed(observation, status, seen, verdict, write)
    if verdict.outcome == "Revised":
        status = structs.replace(
            status, preemption=own_place_reservation(observation.job, observation.now)
        )
    status = structs.replace(
        status,
        placement=(),
        nodes="",
        width=None,
        restarts=status.restarts + (step is Step.RETRY_COUNTED),
        preemptions=status.preemptions + (verdict.outcome == "Preempted"),
        moves=status.moves + (verdict.outcome == "Moved"),
        held_since=held_since(status) if verdict.outcome == "Revised" else None,
    )
    if verdict.outcome == "Moved" and observation.move is not None:
        status = structs.replace(status, preemption=observation.move.preemption)
    status = _waiting_again(status, verdict, write)
    wait = JOB_GOING_SECONDS if seen.jobs or seen.has_job_per_pod else 0.0
    again_at = times.after(observation.now, wait)
    left = [a for job in extra_workers.jobs_of(observation, seen.number) for a in delete_job(job)]
    actions = (*_left_behind(observation, seen, verdict), *left)
    return Decision(status=status, actions=actions, again_at=again_at)


def _left_behind(
    observation: Observation, seen: AttemptView, verdict: Verdict
) -> tuple[Action, ...]:
    """Keep what a failure leaves, for its logs: the Job controller ends the Job by itself.

    Exceptions are Jobs whose workers fail alone, and pods with their own Jobs: there the other
    workers would continue.
    """
    if verdict.outcome != "Failed":
        return tuple(action for job in seen.jobs for action in delete_job(job))
    if seen.has_job_per_pod:
        return tuple(action for job in seen.jobs for action in end_pods(job, observation))
    ignores = seen.spec.ignores_failures
    return tuple(StopJob(name=job.metadata.name) for job in seen.jobs if ignores)


def _succeeded(
    observation: Observation,
    status: GpuJobStatus,
    seen: AttemptView,
    verdict: Verdict,
    write: Writer,
) -> Decision:
    status = results.with_results(status, readings.read(seen.workers, seen.ended), write)
    status = mark_finished(status, observation.now)
    message = f"{verdict.message}: {status.headline}" if status.headline else verdict.message
    status = _given_back(status, write)
    status = write.set(status, Type.FAILED, "False", verdict.reason, "")
    status = write.set(status, Type.SUCCEEDED, "True", verdict.reason, message)
    return finished.decide(observation, status)


def _failed(
    observation: Observation,
    status: GpuJobStatus,
    seen: AttemptView,
    verdict: Verdict,
    write: Writer,
) -> Decision:
    found = readings.read(seen.workers, seen.ended)
    status = with_failure(
        status, found, reason=verdict.reason, message=verdict.message, write=write
    )
    status = mark_finished(status, observation.now)
    return finished.decide(observation, status)


def with_failure(
    status: GpuJobStatus, found: readings.Readings, *, reason: str, message: str, write: Writer
) -> GpuJobStatus:
    """Return the status with the results and conditions of a failed job."""
    status = results.with_results(status, found, write)
    status = _given_back(status, write)
    status = write.set(status, Type.SUCCEEDED, "False", reason, "")
    return write.set(status, Type.FAILED, "True", reason, message)


def _given_back(status: GpuJobStatus, write: Writer) -> GpuJobStatus:
    """Keep the value of Admitted, which clients may wait for, and say that no GPUs are held."""
    status = write.set(status, Type.RUNNING, "False", JobReason.ENDED, "")
    admitted = get(status, Type.ADMITTED)
    if admitted is None or admitted.status != "True":
        return write.set(status, Type.ADMITTED, "False", JobReason.ENDED, "")
    message = f"attempt {status.attempt} has ended and released its GPUs"
    return write.set(status, Type.ADMITTED, "True", JobReason.ENDED, message)


def mark_finished(status: GpuJobStatus, now: dt.datetime) -> GpuJobStatus:
    """Mark the job as finally ended.

    Its time to live begins, and its pods are not planned any more.
    """
    roles = tuple(structs.replace(role, planned_pod=None) for role in status.roles)
    return structs.replace(status, finished_at=format_time(now), planned_pod=None, roles=roles)


def _waiting_again(status: GpuJobStatus, verdict: Verdict, write: Writer) -> GpuJobStatus:
    suspended = verdict.outcome == "Suspended"
    reason = JobReason.SUSPENDED if suspended else JobReason.RESTARTING
    message = f"attempt {status.attempt} ended ({verdict.reason}): {verdict.message}"
    if start := attempts.next_start(status):
        message += f"; the next one starts at {format_time(start)} or later"
    status = write.set(status, Type.RUNNING, "False", reason, "")
    return write.set(
        status, Type.ADMITTED, "False", reason, verdict.message if suspended else message
    )
