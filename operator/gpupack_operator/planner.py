# SPDX-License-Identifier: Apache-2.0
"""Requests for placements: first a dry run at the API server, then the plan API."""

import asyncio
import dataclasses
import logging
import time
from typing import Final

import msgspec

from gpupack_crds import names
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.plan import PlanRefusal, PlanRequest, PlanResponse
from gpupack_crds.times import format_time
from gpupack_kubeclient import errors
from gpupack_kubeclient.clock import ServerClock
from gpupack_kubeclient.objects import Json
from gpupack_operator.cache import CachedGpuJob
from gpupack_operator.decision import attempts, times
from gpupack_operator.decision.gang_jobs import shared_pods
from gpupack_operator.decision.model import (
    Answer,
    GrowthPlan,
    NoGrowth,
    NoPlan,
    Plan,
    PlannerBusy,
    PlanPending,
    RequestGrowth,
    RequestPlan,
)
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.errors import PlanBusy, PlanInvalid, PlanUnanswered, TemplateInvalid
from gpupack_operator.manifests import pod
from gpupack_operator.manifests.gang import GangAttempt, largest_pod
from gpupack_operator.manifests.shared_pod import sharing_obstacle
from gpupack_operator.manifests.worker_kind import WorkerKind
from gpupack_operator.planned_spec import planned_pods
from gpupack_operator.plans import PlanClient
from gpupack_operator.pod_admission import PodAdmission, first_pod

log = logging.getLogger(__name__)

PLAN_MARGIN_SECONDS = 1.0
"""Time left of a plan when its write is given up: the write may still be under way."""


DRY_RUN_PART: Final = 1 / 3
"""Part of the time for which a plan holds its GPUs that a dry run of a shared pod may take."""


class Planner:
    """Client that requests the placements of attempts."""

    def __init__(
        self,
        plans: PlanClient,
        admission: PodAdmission,
        *,
        defaults: pod.PodDefaults,
        provisioning: Provisioning | None,
        clock: ServerClock,
    ) -> None:
        self._plans = plans
        self._admission = admission
        self._defaults = defaults
        self._provisioning = provisioning
        self._clock = clock

    async def plan(
        self, seen: CachedGpuJob, action: RequestPlan, *, priority: int, is_quota_uncertain: bool
    ) -> Answer:
        """Request a placement if the API server accepts the first pod.

        Args:
            seen: the GPUJob.
            action: the attempt.
            priority: the job's priority; a larger value goes first.
            is_quota_uncertain: whether an earlier dry run of such pods may be outdated.
        """
        job, reviewed = seen.job, []
        for kind in seen.kinds:
            found = await self._review(kind, action, is_quota_uncertain=is_quota_uncertain)
            if isinstance(found, NoPlan):
                return found
            reviewed.append(found)
        pods = tuple(each.spec for each in reviewed)
        meta = job.metadata
        answer = await self._request(
            PlanRequest(
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                attempt=action.attempt,
                spec=_without_templates(job.spec),
                pod_spec=msgspec.Raw(b"{}") if job.spec.roles else pods[0],
                role_pods=pods if job.spec.roles else (),
                avoid=action.avoid,
                resource_version=meta.resource_version,
                priority=priority,
                submitted_at=format_time(meta.creation_timestamp or self._clock.now()),
                waits_since=format_time(since) if (since := times.waits_since(job)) else None,
                seconds_left=times.seconds_left(job.spec, job.status),
                held_since=job.status.held_since,
                created_by=meta.annotations.get(names.CREATED_BY_ANNOTATION, ""),
            )
        )
        if isinstance(answer, Plan):
            answer = await self._with_pod_sharing(seen, action, reviewed[0].template, answer)
        if isinstance(answer, Plan | PlanPending):
            planned = planned_pods({each.name: each.admitted for each in reviewed})
            return dataclasses.replace(answer, planned_pods=planned)
        return answer

    async def _review(
        self, kind: WorkerKind, action: RequestPlan, *, is_quota_uncertain: bool
    ) -> "_Reviewed | NoPlan":
        """Let the API server review the first pod of some workers that are alike."""
        try:
            template = pod.template(
                kind.job, kind.user, attempt=action.attempt, defaults=self._defaults, role=kind.role
            )
            of_kind = pod.template_hash(
                kind.job, kind.user, defaults=self._defaults, role=kind.role
            )
        except TemplateInvalid as error:
            role = f"role {kind.name}: " if kind.role else ""
            message = f"{role}{error}"
            return NoPlan(reason=JobReason.INVALID_TEMPLATE, message=message, permanent=True)
        admitted = await self._admission.review(
            kind,
            template,
            kind=of_kind,
            attempt=action.attempt,
            is_quota_uncertain=is_quota_uncertain,
        )
        if isinstance(admitted, NoPlan):
            return admitted
        return _Reviewed(kind.name, template, admitted.spec)

    async def _with_pod_sharing(
        self, seen: CachedGpuJob, action: RequestPlan, template: Json, plan: Plan
    ) -> Answer:
        """Decide whether workers that have places on one node share a pod."""
        job = seen.job
        placed = attempts.begin_attempt(
            job.status, plan.placement, self._clock.now(), shares_pods=True
        )
        job = msgspec.structs.replace(job, status=placed)
        if not job.spec.may_share_pods or not shared_pods(job, placed):
            return plan
        if job.spec.pod_per_worker is not None:
            return dataclasses.replace(plan, shares_pods=True)
        container = pod.worker_container(job, seen.template)
        separate = action.separate or sharing_obstacle(template["spec"], container)
        if separate:
            return dataclasses.replace(plan, separate=separate)
        began = time.monotonic()
        attempt = GangAttempt(job, seen.template, action.attempt)
        refusal = await self._refusal(
            largest_pod(attempt, template, self._provisioning),
            seconds=plan.seconds * DRY_RUN_PART,
        )
        seconds = plan.seconds - (time.monotonic() - began)
        if seconds <= 0:
            return _too_late()
        separate = f"the API server refuses pods of several workers: {refusal}" if refusal else ""
        return dataclasses.replace(
            plan, seconds=seconds, shares_pods=not separate, separate=separate
        )

    async def _refusal(self, tried: Json, *, seconds: float) -> str:
        """Return why the API server refuses a shared pod; empty: it does not, or it is not known.

        The plan holds GPUs during the dry run. If nothing is known the pod is created, as after all
        dry runs without an answer.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._admission.refusal(tried)
        except (TimeoutError, errors.Unreachable, errors.Refused, errors.Oversized) as error:
            name = tried["metadata"]["name"]
            log.warning("a dry run of pod %s has no answer within %.1f s: %r", name, seconds, error)
            return ""

    async def grow(self, seen: CachedGpuJob, action: RequestGrowth) -> Answer:
        """Request a running attempt's placement, including the places that are held for it now."""
        meta = seen.job.metadata
        request = PlanRequest(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            attempt=action.attempt,
            spec=_without_templates(seen.job.spec),
            pod_spec=msgspec.Raw(b"{}"),
            resource_version=meta.resource_version,
            grows=True,
        )
        requested_at = time.monotonic()
        try:
            answer = await self._plans.request_plan(request)
        except PlanBusy:
            return PlannerBusy()
        except (PlanUnanswered, PlanInvalid) as error:
            log.warning("%s/%s does not grow now: %s", meta.namespace, meta.name, error)
            return NoGrowth()
        if isinstance(answer, PlanRefusal):
            return NoGrowth()
        seconds = answer.expires_seconds - (time.monotonic() - requested_at) - PLAN_MARGIN_SECONDS
        return GrowthPlan(answer.placement, seconds) if seconds > 0 else NoGrowth()

    async def _request(self, request: PlanRequest) -> Answer:
        requested_at = time.monotonic()
        try:
            answer = await self._plans.request_plan(request)
        except PlanBusy:
            return PlannerBusy()
        except PlanUnanswered as error:
            reason = JobReason.PLAN_DENIED if error.denied else JobReason.SCHEDULER_UNAVAILABLE
            return NoPlan(reason=reason, message=str(error))
        except PlanInvalid as error:
            return NoPlan(reason=JobReason.INVALID_TEMPLATE, message=str(error), permanent=True)
        if isinstance(answer, PlanRefusal):
            return _pending(answer, requested_at)
        return _planned(answer, requested_at, priority=request.priority)

    async def admitted_template(self, seen: CachedGpuJob, attempt: int) -> Json:
        """Return the pod template with the first pod's PodSpec after admission.

        An autoscaler computes the pods' requests from the PodTemplate alone.

        Raises:
            TemplateInvalid: the user's template cannot be merged over gpupack's.
            Invalid, Forbidden: the API server refuses the pod.
        """
        template = self._template(seen, attempt)
        spec = await self._admission.try_pod(first_pod(seen.kinds[0], template, attempt=attempt))
        return template if spec is None else template | {"spec": msgspec.json.decode(spec)}

    def _template(self, seen: CachedGpuJob, attempt: int) -> Json:
        """Return the pod template of an attempt, not pinned to nodes.

        Raises:
            TemplateInvalid: the user's template cannot be merged over gpupack's.
        """
        return pod.template(seen.job, seen.template, attempt=attempt, defaults=self._defaults)


@dataclasses.dataclass(frozen=True, slots=True)
class _Reviewed:
    """First pod of some workers: their role, their template, and their pod after admission."""

    name: str
    template: Json
    admitted: bytes | None

    @property
    def spec(self) -> msgspec.Raw:
        return msgspec.Raw(self.admitted or msgspec.json.encode(self.template["spec"]))


def _without_templates(spec: GpuJobSpec) -> GpuJobSpec:
    """Return the spec without what the pods have.

    Sent twice, a large template would exceed the reader's limit.
    """
    roles = tuple(msgspec.structs.replace(role, template=None) for role in spec.roles)
    return msgspec.structs.replace(spec, template=None, roles=roles)


def _planned(answer: PlanResponse, requested_at: float, *, priority: int) -> Answer:
    """Return the plan; its hold began at some time after the request."""
    seconds = answer.expires_seconds - (time.monotonic() - requested_at) - PLAN_MARGIN_SECONDS
    if seconds > 0:
        return Plan(placement=answer.placement, seconds=seconds, priority=priority)
    return _too_late()


def _too_late() -> NoPlan:
    message = "the plan expired before it could be written"
    return NoPlan(reason=JobReason.SCHEDULER_UNAVAILABLE, message=message)


def _pending(answer: PlanRefusal, requested_at: float) -> Answer:
    """Return the answer; a preemption must be written as soon as a plan."""
    seconds = None
    if answer.preemption is not None:
        passed = time.monotonic() - requested_at
        seconds = max(answer.expires_seconds - passed - PLAN_MARGIN_SECONDS, 0.0)
    return PlanPending(
        reason=answer.reason,
        message=answer.message,
        lasting=answer.lasting or answer.message,
        position=answer.position,
        preemption=answer.preemption,
        seconds=seconds,
        gpu_shortage=answer.gpu_shortage,
        queued=answer.queued,
    )
