# SPDX-License-Identifier: Apache-2.0
"""Requests for nodes for a GPUJob that does not fit on the existing nodes, and their return.

    (none) ─► Creating ─► Requested ─► Provisioned ─► Withdrawn: the job runs
      ▲          │            │             │
      └─ Failed ◄┴────────────┴─────────────┘  any open state ─► Withdrawn: nodes are not needed

`status.nodesRequest` is written before anything acts on it, and the objects' names follow from its
number. So an operator that restarts at any point finds the objects that exist, and requests nothing
twice. Objects that may exist are deleted until their deletion is confirmed. Deferred: a limit
delays the request.

Only the queue's own answer that nothing but free GPUs is lacking counts, and it is requested again
before nodes are requested. These requests run in parallel with the rest of the job's life and do
not change it.
"""

import dataclasses
import datetime as dt

from msgspec import structs

from gpupack_crds import names
from gpupack_crds.condition import ConditionStatus
from gpupack_crds.gpujob_status import GpuJobStatus, NodesRequest, NodesState
from gpupack_crds.times import format_time
from gpupack_operator.decision import attempts, gpus, nodes_request_messages, times
from gpupack_operator.decision.conditions import Type, Writer, clip
from gpupack_operator.decision.model import Action, Decision, Observation, PlanPending, RequestPlan
from gpupack_operator.decision.nodes import (
    CreateNodesRequest,
    DeleteNodesRequest,
    NodesRequestAllowed,
    NodesRequestCreated,
    NodesRequestDeferred,
    NodesRequestDeleted,
    NodesRequestRefused,
    Provisioning,
    ReserveNodesRequest,
)

CHECK_SECONDS = 1.0
"""How often to read a ProvisioningRequest. So few are open at a time that a watch, with the right
to read those of all namespaces, would be no gain.
"""

MAX_REASON_CHARACTERS = 512

LIMIT_MESSAGE_SECONDS = 600.0
"""Time for which the status may name a limit although another one applies by now."""

QUOTA_REASONS = frozenset({"BorrowingLimitExceeded", "QuotaExceeded", "Unsatisfiable"})
"""Reasons of the queue for which free GPUs are not what is lacking: more nodes would not help."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Step:
    request: NodesRequest
    actions: tuple[Action, ...] = ()
    again_at: dt.datetime | None = None


def with_node_request(observation: Observation, decision: Decision, write: Writer) -> Decision:
    """Add the steps to request or return nodes to a decision."""
    before = decision.status.nodes_request
    if before is None and observation.provisioning is None:
        return decision
    step = _step(observation, decision, before or NodesRequest())
    status = _written(observation, decision.status, step.request, write)
    return dataclasses.replace(
        decision,
        status=status,
        actions=decision.actions or step.actions,
        again_at=times.earliest(decision.again_at, step.again_at),
    )


def _step(observation: Observation, decision: Decision, request: NodesRequest) -> _Step:
    if isinstance(observation.answer, NodesRequestDeleted):
        request = structs.replace(request, objects=False)
    settings, phase = observation.provisioning, decision.status.phase
    if phase == "Pending" and settings is not None:
        step = _waiting(observation, request, settings)
    elif phase == "Admitted" and _may_use_requested_nodes(observation, request):
        is_reported = request.state == "Provisioned"
        step = _Step(request if is_reported else _in_state(observation, request, "Provisioned"))
    else:
        step = _Step(_not_waiting(observation, request, decision.status))
    if step.request.is_open or not step.request.objects or decision.actions:
        return step
    return dataclasses.replace(step, actions=(DeleteNodesRequest(request.number),))


def _may_use_requested_nodes(observation: Observation, request: NodesRequest) -> bool:
    """Tell whether the job may have been placed on the requested nodes."""
    seen = observation.nodes
    says_yes = seen is not None and seen.state == "Provisioned"
    return request.state == "Provisioned" or (request.state == "Requested" and says_yes)


def _not_waiting(
    observation: Observation, request: NodesRequest, status: GpuJobStatus
) -> NodesRequest:
    request = structs.replace(request, lacks_gpus_since=None)
    runs = status.phase in {"Admitted", "Running"}
    if request.state == "Deferred" or (runs and request.state == "Failed"):
        request = structs.replace(request, state="", message="", failures=0)
    if not request.is_open:
        return request
    why = "the job has its places" if runs else f"the job is {status.phase.lower()}"
    if status.phase == "Pending":
        why = "no nodes are requested any more"
    return _closed(observation, request, "Withdrawn", why, failures=0)


def _waiting(observation: Observation, request: NodesRequest, settings: Provisioning) -> _Step:
    request = _record_shortage(observation, _for_current_spec(observation, request), settings)
    if request.is_open:
        request = _record_progress(observation, request, settings)
    if not request.is_open:
        return _request_when_due(observation, request, settings)
    actions = (CreateNodesRequest(request.number),) if request.state == "Creating" else ()
    return _Step(request, actions, times.after(observation.now, CHECK_SECONDS))


def _for_current_spec(observation: Observation, request: NodesRequest) -> NodesRequest:
    """Return a request for another spec, and forget what was learned from it."""
    generation = observation.job.metadata.generation
    if request.generation == generation:
        return request
    if request.is_open:
        request = _closed(observation, request, "Withdrawn", "the job was changed")
    return structs.replace(request, generation=generation, failures=0, lacks_gpus_since=None)


def _record_shortage(
    observation: Observation, request: NodesRequest, settings: Provisioning
) -> NodesRequest:
    """Record the answer of the queue."""
    answer = observation.answer
    if not isinstance(answer, PlanPending) or not answer.queued:
        return request
    lacks = answer.gpu_shortage if _uses_whole_gpus(observation) else None
    starts_in = lacks.starts_in_seconds if lacks else None
    if lacks and (starts_in is None or starts_in > settings.min_wait_seconds):
        since = request.lacks_gpus_since or format_time(observation.now)
        return structs.replace(request, lacks_gpus_since=since)
    if request.is_open and answer.reason in QUOTA_REASONS:
        why = "the namespace's quota does not allow the job any more"
        request = _closed(observation, request, "Withdrawn", why)
    if request.state == "Deferred":
        request = structs.replace(request, state="", message="")
    return structs.replace(request, lacks_gpus_since=None)


def _record_progress(
    observation: Observation, request: NodesRequest, settings: Provisioning
) -> NodesRequest:
    """Record the progress of the open request."""
    match observation.answer:
        case NodesRequestCreated() if request.state == "Creating":
            return _in_state(observation, request, "Requested")
        case NodesRequestRefused(message=message) if request.state == "Creating":
            return _failed(observation, request, message)
    trouble = _failure(observation, request, settings)
    if trouble:
        return _failed(observation, request, trouble)
    seen = observation.nodes
    if request.state == "Requested" and seen is not None and seen.state == "Provisioned":
        return _in_state(observation, request, "Provisioned")
    return request


def _failure(observation: Observation, request: NodesRequest, settings: Provisioning) -> str:
    """Return why the request has failed; empty: it has not."""
    name = names.nodes_request(observation.job.metadata.name, number=request.number)
    seen, waits = observation.nodes, request.state != "Provisioned"
    if seen is not None and seen.state == "Gone":
        return f"another client deleted ProvisioningRequest {name}"
    if seen is not None and seen.state == "Failed":
        return f"ProvisioningRequest {name}: {seen.message}"
    seconds = settings.decision_seconds if waits else settings.place_seconds
    since = times.read(request.since or format_time(observation.now))
    if observation.now < times.after(since, seconds):
        return ""
    if request.state == "Creating":
        return f"ProvisioningRequest {name} could not be created within {seconds:.0f} s"
    if waits and (seen is None or seen.state == "Open"):
        return f"no autoscaler answered ProvisioningRequest {name} within {seconds:.0f} s"
    gave = f"the nodes of ProvisioningRequest {name} gave the job no place within {seconds:.0f} s"
    return "" if waits else gave


def _request_when_due(
    observation: Observation, request: NodesRequest, settings: Provisioning
) -> _Step:
    """Request nodes now, or return when to do so."""
    since = request.lacks_gpus_since
    if since is None or request.objects or request.failures >= settings.max_failures:
        return _Step(request)
    due_at = _due_at(request, settings, since)
    if observation.now < due_at:
        return _Step(request, again_at=due_at)
    return _check_and_request(observation, request)


def _check_and_request(observation: Observation, request: NodesRequest) -> _Step:
    """Check the limits, then the queue's current answer, then the limits again."""
    requested, again_at = gpus.number(observation.job.spec), None
    actions: tuple[Action, ...] = ()
    match observation.answer:
        case NodesRequestAllowed(is_fresh=True):
            request = _in_state(observation, request, "Creating")
            request = structs.replace(request, number=request.number + 1, objects=True)
            actions = (CreateNodesRequest(request.number),)
        case NodesRequestAllowed():
            actions = (_request_plan(observation),)
        case NodesRequestDeferred(message=message, retry_seconds=seconds):
            if message and _is_news(observation, request):
                request = _in_state(observation, request, "Deferred", message)
            again_at = times.after(observation.now, seconds)
        case PlanPending(gpu_shortage=lacks, position=position) if lacks is not None:
            actions = (ReserveNodesRequest(requested, position, lacks.quota_gpus, is_fresh=True),)
        case None | NodesRequestDeleted():
            position = observation.wait_message.position if observation.wait_message else 0
            actions = (ReserveNodesRequest(requested, position),)
    return _Step(request, actions, again_at)


def _is_news(observation: Observation, request: NodesRequest) -> bool:
    """Tell whether the text may be written: limits change often, and each text is a write."""
    if request.state != "Deferred" or request.since is None:
        return True
    return observation.now >= times.after(times.read(request.since), LIMIT_MESSAGE_SECONDS)


def _request_plan(observation: Observation) -> RequestPlan:
    """Request a plan of the queue for the next attempt."""
    status = observation.job.status
    avoid = attempts.nodes_to_avoid(status, observation.now, observation.limits.avoid_seconds)
    return RequestPlan(status.attempt + 1, avoid)


def _due_at(request: NodesRequest, settings: Provisioning, lacks_gpus_since: str) -> dt.datetime:
    due_at = times.after(times.read(lacks_gpus_since), settings.after_seconds)
    if request.since is None or request.state not in {"Failed", "Withdrawn"}:
        return due_at
    failed = request.state == "Failed" and request.failures
    pause = settings.backoff_after(request.failures) if failed else settings.retry_after_seconds
    return max(due_at, times.after(times.read(request.since), pause))


def _failed(observation: Observation, request: NodesRequest, why: str) -> NodesRequest:
    return _closed(observation, request, "Failed", why, failures=request.failures + 1)


def _closed(
    observation: Observation,
    request: NodesRequest,
    state: NodesState,
    why: str,
    *,
    failures: int | None = None,
) -> NodesRequest:
    request = _in_state(observation, request, state, why)
    return request if failures is None else structs.replace(request, failures=failures)


def _in_state(
    observation: Observation, request: NodesRequest, state: NodesState, message: str = ""
) -> NodesRequest:
    since = format_time(observation.now)
    said = clip(message, MAX_REASON_CHARACTERS)
    return structs.replace(request, state=state, since=since, message=said)


def _written(
    observation: Observation, status: GpuJobStatus, request: NodesRequest, write: Writer
) -> GpuJobStatus:
    is_used = request.number or request.lacks_gpus_since or request.state
    status = structs.replace(status, nodes_request=request if is_used else None)
    described = nodes_request_messages.describe_request(
        request, observation.job, observation.provisioning
    )
    if described is None:
        return write.without(status, Type.NODES_REQUESTED)
    value: ConditionStatus = "True" if request.is_open else "False"
    return write.set(status, Type.NODES_REQUESTED, value, *described)


def _uses_whole_gpus(observation: Observation) -> bool:
    """Tell whether all workers use the same number of whole GPUs.

    It is not known how the GPUs of a new node would be divided or shared, and a request for nodes
    has pods of one kind.
    """
    spec = observation.job.spec
    return spec.share is None and spec.mig is None and not spec.roles
