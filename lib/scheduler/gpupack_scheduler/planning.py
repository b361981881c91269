# SPDX-License-Identifier: Apache-2.0
"""The plan API: places for all workers of an attempt, or a place in the queue.

Another call for the same attempt returns the same places while they are held and usable. A plan
that is no longer usable is dropped and made again, unless it is already written: only the operator
changes the status of a GPUJob.
"""

import dataclasses
import datetime as dt
from typing import Final

import msgspec

from gpupack_crds.placement import WorkerPlacement, by_node
from gpupack_crds.plan import GpuShortage, PlanRefusal, PlanRequest, PlanResponse
from gpupack_placement import WHOLE_GPU, NodeName
from gpupack_queue import Never, Wait, WaitReason, latest_start, with_models
from gpupack_scheduler.decisions import Decisions
from gpupack_scheduler.errors import QueueFull, RequestInvalid
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.claims import State, WorkerClaim
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.queueing.pending.request import GangRequest
from gpupack_scheduler.queueing.queue_owner import QueueOwner
from gpupack_scheduler.requests import gang_request
from gpupack_scheduler.requests.created_by import bounded_name
from gpupack_scheduler.requests.gang_request import WorkerPod

UNBOUNDED_GPUS: Final = 1e9
"""Threshold above which a quota counts as unlimited: its number is not exactly infinite."""

TOO_EARLY: Final = "the scheduler has not yet seen the last attempt end"


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The plan API as a function of ledger and queue."""

    ledger: Ledger
    owner: QueueOwner
    decisions: Decisions

    def __call__(self, call: PlanRequest) -> PlanResponse | PlanRefusal:
        """Answer one call.

        Raises:
            RequestInvalid: the spec or the pod spec cannot be read or served.
        """
        self.ledger.expire()
        if call.grows:
            return self._more(call)
        ask = self._ask(call)
        held = self.ledger.plan_of(ask.attempt)
        if held and self._stands(held, ask):
            seconds, version = self.decisions.plan_hold_seconds, call.resource_version
            self.ledger.renew_plan(ask.attempt, seconds=seconds, version=version)
            return self._response(held)
        if outside := self._submit(ask):
            return outside
        self.owner.decide(asking=ask.attempt)
        admitted = self.ledger.plan_of(ask.attempt)
        if admitted:
            return self._response(admitted)
        preemption = self.owner.preemption(ask.attempt)
        refusal = _refusal(self.owner.explain(ask.attempt), self.owner.now())
        if preemption is None:
            return refusal
        seconds = self.decisions.plan_hold_seconds
        return msgspec.structs.replace(refusal, preemption=preemption, expires_seconds=seconds)

    def _submit(self, ask: GangRequest) -> PlanRefusal | None:
        """Add the attempt to the queue; return the refusal if it cannot wait there now."""
        if self.owner.is_too_early(ask.attempt):
            return PlanRefusal(reason=WaitReason.ADMISSION_PENDING, message=TOO_EARLY, queued=False)
        self.ledger.drop_plans(ask.attempt.job_uid)
        try:
            self.owner.submit(ask)
        except QueueFull as error:
            return PlanRefusal(reason="QueueFull", message=str(error), queued=False)
        return None

    def _more(self, call: PlanRequest) -> PlanResponse | PlanRefusal:
        """Return the places of a running attempt, including usable ones that it has yet to get."""
        attempt = _attempt(call)
        self.ledger.drop_unusable(attempt)
        seconds, version = self.decisions.plan_hold_seconds, call.resource_version
        self.ledger.renew_plan(attempt, seconds=seconds, version=version)
        if held := self.ledger.plan_of(attempt):
            return self._response(held)
        message = f"no places are held for {attempt}"
        return PlanRefusal(reason="PlacesTaken", message=message, queued=False)

    def _ask(self, call: PlanRequest) -> GangRequest:
        specs = call.role_pods if call.spec.roles else (call.pod_spec,)
        pods, observed = tuple(map(WorkerPod.read, specs)), self.decisions.observed_resources
        return GangRequest(
            attempt=_attempt(call),
            gang=gang_request.gang(call.spec, pods, observed, namespace=call.namespace),
            policy=call.spec.policy,
            priority=call.priority,
            submitted=_moment(call.submitted_at) if call.submitted_at else self.owner.now(),
            since=_moment(call.waits_since) if call.waits_since else None,
            duration=call.seconds_left,
            version=call.resource_version,
            avoid=frozenset(map(NodeName, call.avoid)),
            movable=call.spec.movable,
            extra=call.spec.extra,
            held_since=_moment(call.held_since) if call.held_since else None,
            grace=max((pod.grace for pod in pods), default=0.0),
            user=bounded_name(call.created_by),
            model_fallback_seconds=call.spec.model_fallback_seconds,
            reservation=call.spec.reservation,
        )

    def _stands(self, held: tuple[WorkerClaim, ...], ask: GangRequest) -> bool:
        """Tell whether these places still fit the request: admission may change the pod.

        The models are fixed, and a running job has only those that it uses.
        """
        gang = ask.gang
        if any(claim.state is State.WRITTEN for claim in held):
            return True
        admitted = self.owner.admitted_gang(ask.attempt)
        if admitted is None or with_models(admitted, ()) != with_models(gang, ()):
            return False
        obstacles = (
            self.ledger.claims.obstacle(claim.allocation, may_be_left=True) for claim in held
        )
        of_gang = sum(claim.worker.index < gang.workers for claim in held)
        return of_gang == gang.workers and not any(obstacles)

    def _response(self, held: tuple[WorkerClaim, ...]) -> PlanResponse:
        return PlanResponse(
            placement=by_node(
                WorkerPlacement(
                    worker=claim.worker.index,
                    node=claim.placement.node,
                    devices=claims.shares(claim.placement),
                )
                for claim in held
            ),
            expires_seconds=self.decisions.plan_hold_seconds,
        )


def _attempt(call: PlanRequest) -> AttemptKey:
    return AttemptKey(
        namespace=call.namespace, job=call.name, job_uid=call.uid, number=call.attempt
    )


def reason_of(wait: Wait) -> str:
    """Return the reason for a GPUJob's status: why it fits nowhere, or what else it waits for."""
    if wait.refusal is not None and wait.reason is WaitReason.DOES_NOT_FIT:
        return wait.refusal.reason.value
    return wait.reason.value


def _refusal(wait: Wait, now: float) -> PlanRefusal:
    refusal = wait.refusal
    return PlanRefusal(
        reason=reason_of(wait),
        message=wait.message,
        counts={each.reason.value: each.nodes for each in refusal.counts} if refusal else {},
        never=isinstance(wait.start, Never),
        position=wait.position,
        waiting=wait.pending,
        lasting=wait.message_without_times,
        gpu_shortage=_lacks_room(wait, now) if wait.lacks_only_gpus else None,
    )


def _lacks_room(wait: Wait, now: float) -> GpuShortage:
    by, left = latest_start(wait.start), wait.left / WHOLE_GPU
    return GpuShortage(
        starts_in_seconds=None if by is None else max(by.at - now, 0.0),
        quota_gpus=left if left < UNBOUNDED_GPUS else None,
    )


def _moment(written: str) -> float:
    """Convert an RFC 3339 time into seconds since the epoch."""
    try:
        return dt.datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError) as error:
        raise RequestInvalid(f"{written!r} is no moment: {error}") from error
