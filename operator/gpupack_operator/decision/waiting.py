# SPDX-License-Identifier: Apache-2.0
"""GPUJob without a current attempt: clean up after the last one, wait, plan, admit.

The next attempt begins only when no pod of an earlier one can run any more: two of them could write
the same checkpoint. A pod that is deleted and does not end hangs on its node. The job waits for it
as long as that node's kubelet or agent gives a sign of life, because its containers may still run.
When both are silent, the job waits no longer, not even for the pod's grace period, since such a
node does not know of the deletion. The ledger does not give the pod's devices to others before the
pod is gone.
"""

import dataclasses
import datetime as dt

from msgspec import structs

from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.placement import by_worker
from gpupack_crds.times import format_time
from gpupack_kubeclient.objects import Pod
from gpupack_operator.decision import (
    attempts,
    cleanup,
    extra_workers,
    finished,
    gpus,
    pod_sharing,
    readings,
    running,
    times,
)
from gpupack_operator.decision.conditions import Type, Writer
from gpupack_operator.decision.model import (
    Decision,
    NoPlan,
    Observation,
    Plan,
    PlannerBusy,
    PlanPending,
    RequestPlan,
    WaitMessage,
)
from gpupack_operator.decision.planned_pods import with_planned_pods
from gpupack_operator.decision.reasons import JobReason, reason_of_deadline
from gpupack_operator.decision.view import view
from gpupack_operator.decision.workers import is_overdue, may_run

CHECK_SECONDS = 5.0
"""How often to check for objects that should disappear by themselves."""

FIRST_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 15.0
"""Longest time between two requests if the first had no answer."""

OVERDUE_SECONDS = 10.0
"""How long after its grace period a pod may take to end before the status reports it."""

QUIET_SECONDS = 10.0
"""How long a message may be outdated while its reason holds, however often plans are requested."""

STALE_SECONDS = 600.0
"""The same limit for a message that differs only in times, and for one that says only that the job
is admitted next: the write of its placement follows.
"""


def decide(observation: Observation, status: GpuJobStatus, write: Writer) -> Decision:
    """Take the first possible step."""
    actions, look_at = cleanup.clear_jobs(observation, status)
    if observation.job.spec.suspend:
        status = structs.replace(status, preemption=None)
        status = _set(status, JobReason.SUSPENDED, "spec.suspend is true", write)
        return Decision(status=status, actions=actions, again_at=look_at)
    left = times.seconds_left(observation.job.spec, status)
    if left is not None and left <= 0:
        limit = times.describe_limit(observation.job.spec, status.run_limit)
        message = f"the job was active for {status.active_seconds} s of {limit} "
        message += "and cannot start again"
        reason = reason_of_deadline(status.run_limit)
        return _failed(observation, status, write, reason=reason, message=message)
    if status.phase == "Suspended":
        status = structs.replace(status, resumed_at=format_time(observation.now))
        status = _set(status, JobReason.QUEUED, "the job was resumed", write)
        return Decision(status=status, actions=actions, again_at=observation.now)
    ready_at = _ready_at(observation, status)
    if ready_at is not None:
        status = _with_terminating_workers(observation, status, write)
        again_at = times.earliest(ready_at, look_at)
        return Decision(status=status, actions=actions, again_at=again_at)
    return _plan(observation, status, write)


def _ready_at(observation: Observation, status: GpuJobStatus) -> dt.datetime | None:
    """Return when to check whether the next attempt can begin; None: now."""
    if not cleanup.are_all_cleared(observation, status):
        return times.after(observation.now, CHECK_SECONDS)
    if any(may_run(pod, observation.silent_nodes) for pod in observation.pods):
        return times.after(observation.now, CHECK_SECONDS)
    start = attempts.next_start(status)
    return start if start is not None and start > observation.now else None


def _with_terminating_workers(
    observation: Observation, status: GpuJobStatus, write: Writer
) -> GpuJobStatus:
    """Say which worker keeps the job from starting again, once it should have ended."""
    patience_over = times.after(observation.now, -OVERDUE_SECONDS)
    hanging = [
        pod
        for pod in observation.pods
        if is_overdue(pod, patience_over) and may_run(pod, observation.silent_nodes)
    ]
    if hanging:
        return _set(status, JobReason.WORKERS_TERMINATING, _hangs(hanging[0]), write)
    if status.reason == JobReason.WORKERS_TERMINATING:
        return _set(status, JobReason.RESTARTING, "the last attempt's workers are gone", write)
    return status


def _hangs(pod: Pod) -> str:
    return (
        f"pod {pod.metadata.name} of the last attempt was deleted and may still run: node "
        f"{pod.spec.node_name} does not end it and still gives signs of life. The job starts again "
        "when the pod is gone or kubelet and agent of that node are both silent. If you know that "
        "its processes are dead, delete the pod with --force"
    )


def _plan(observation: Observation, status: GpuJobStatus, write: Writer) -> Decision:
    answer = observation.answer
    if isinstance(answer, Plan):
        return _admitted(observation, status, answer, write)
    if isinstance(answer, PlannerBusy):
        again_at = times.after(observation.now, MAX_RETRY_SECONDS)
        return Decision(status=observation.job.status, again_at=again_at)
    if isinstance(answer, NoPlan) and answer.permanent:
        return _failed(observation, status, write, reason=answer.reason, message=answer.message)
    if isinstance(answer, PlanPending):
        preemption = answer.preemption if answer.queued else status.preemption
        status = with_planned_pods(status, answer.planned_pods)
        status = structs.replace(status, preemption=preemption)
    if isinstance(answer, NoPlan | PlanPending):
        again_at = _next_request_at(observation, answer)
        reason, message = answer.reason, answer.message
        return _with_wait_message(
            observation, status, again_at, write, reason=reason, message=message
        )
    if observation.next_request_at and observation.now < observation.next_request_at:
        return Decision(status=status, again_at=observation.next_request_at)
    avoid = attempts.nodes_to_avoid(status, observation.now, observation.limits.avoid_seconds)
    request = RequestPlan(
        status.attempt + 1, avoid, pod_sharing.sharing_refusal(observation.job.spec, status)
    )
    return Decision(status=observation.job.status, actions=(request,))


def _with_wait_message(
    observation: Observation,
    status: GpuJobStatus,
    again_at: dt.datetime,
    write: Writer,
    *,
    reason: str,
    message: str,
) -> Decision:
    """Say why the job waits; a newer message for the same reason may be delayed."""
    newer, last = _set(status, reason, message, write), observation.wait_message
    is_next = reason == JobReason.ADMISSION_PENDING
    is_another = newer.reason != status.reason and not is_next
    if is_another or newer.message == status.message or last is None:
        return Decision(status=newer, again_at=again_at)
    is_news = not is_next and wait_message(observation).lasting != last.lasting
    quiet_seconds = QUIET_SECONDS if is_news else STALE_SECONDS
    tell_at = times.after(last.at, quiet_seconds)
    if tell_at <= observation.now:
        return Decision(status=newer, again_at=again_at)
    return Decision(status=status, again_at=times.earliest(again_at, tell_at))


def wait_message(observation: Observation) -> WaitMessage:
    """Return what a status that is written for this answer says."""
    match observation.answer:
        case PlanPending(lasting=lasting, position=position):
            return WaitMessage(observation.now, lasting, position)
        case NoPlan(message=message):
            return WaitMessage(observation.now, message)
        case None:
            return WaitMessage(observation.now)
    if observation.wait_message is not None:
        return dataclasses.replace(observation.wait_message, at=observation.now)
    return WaitMessage(observation.now)


def _next_request_at(observation: Observation, answer: NoPlan | PlanPending) -> dt.datetime:
    if isinstance(answer, PlanPending) and observation.next_request_at:
        return observation.next_request_at
    if isinstance(answer, NoPlan) and answer.retry_seconds is not None:
        return times.after(observation.now, answer.retry_seconds)
    doublings = min(max(observation.request_failures - 1, 0), 8)
    seconds = min(FIRST_RETRY_SECONDS * 2**doublings, MAX_RETRY_SECONDS)
    return times.after(observation.now, seconds)


def _admitted(
    observation: Observation, status: GpuJobStatus, plan: Plan, write: Writer
) -> Decision:
    status = attempts.begin_attempt(
        status, plan.placement, observation.now, shares_pods=plan.shares_pods
    )
    status = with_planned_pods(status, plan.planned_pods)
    status = structs.replace(
        status,
        priority=plan.priority,
        preemption=None,
        revision=observation.job.spec.revision,
    )
    status = extra_workers.with_width(observation.job.spec, status)
    held = gpus.phrase(observation.job.spec, workers=len(by_worker(plan.placement)))
    message = f"attempt {status.attempt} has {held} on {status.nodes}"
    message += f"; workers of one node have a pod each: {plan.separate}" if plan.separate else ""
    status = write.set(status, Type.ADMITTED, "True", JobReason.ADMITTED, message)
    status = write.set(status, Type.RUNNING, "False", JobReason.STARTING, running.STARTING_MESSAGE)
    seen = view(observation, status, status.attempts[-1])
    return Decision(
        status=status,
        actions=(running.creation(seen),),
        again_at=times.after(
            observation.now, observation.limits.bind_seconds_of(observation.job.spec.least)
        ),
    )


def _failed(
    observation: Observation, status: GpuJobStatus, write: Writer, *, reason: str, message: str
) -> Decision:
    status = structs.replace(status, preemption=None)
    status = running.with_failure(
        status, readings.NONE, reason=reason, message=message, write=write
    )
    status = running.mark_finished(status, observation.now)
    return finished.decide(observation, status)


def _set(status: GpuJobStatus, reason: str, message: str, write: Writer) -> GpuJobStatus:
    return write.set(status, Type.ADMITTED, "False", reason, message)
