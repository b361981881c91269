# SPDX-License-Identifier: Apache-2.0
"""Carries decisions out: the only place that writes."""

import asyncio
import dataclasses
import logging
import secrets
import time
from collections.abc import Awaitable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from gpupack_crds import names
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.kinds import GPUJOBS, GpuJob, status_body
from gpupack_crds.placement import nodes_of
from gpupack_crds.plan import PlanRefusal, PlanRequest, PlanResponse
from gpupack_crds.worker_pods import pods_of
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_kube.events import About, EventWriter, Reporter, Said
from gpupack_kube.objects import Json
from gpupack_kube.resources import JOBS, PODS, SECRETS, SERVICES, Resource
from gpupack_operator.cache import CachedGpuJob
from gpupack_operator.decision import times
from gpupack_operator.decision.cleanup import END_NOW
from gpupack_operator.decision.gang_jobs import shared_pods
from gpupack_operator.decision.model import (
    Answer,
    ApiWrite,
    AskGrowth,
    AskPlan,
    CreateBeside,
    CreateChildren,
    DeleteGpuJob,
    DeleteJob,
    EndPod,
    Grown,
    NotCreated,
    NotCreatedBeside,
    NotGrown,
    NotPlanned,
    NotYet,
    Patch,
    PlanLater,
    Planned,
    SaveLogs,
    SetDeadline,
    StopJob,
    Waits,
)
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.decision.notices import Notice
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.errors import PlanBusy, PlanInvalid, PlanUnanswered, TemplateInvalid
from gpupack_operator.log_tails import LogTails
from gpupack_operator.manifests import mpi, pod
from gpupack_operator.manifests.gang_memory import with_gang_memory
from gpupack_operator.manifests.job import job as job_manifest
from gpupack_operator.manifests.job import job_beside, job_of_pod
from gpupack_operator.manifests.owner import is_ours, is_predecessor_s
from gpupack_operator.manifests.provisioning import consuming
from gpupack_operator.manifests.service import service
from gpupack_operator.planned_spec import planned_pod
from gpupack_operator.plans import PlanClient
from gpupack_operator.pod_admission import PodAdmission, first_pod

log = logging.getLogger(__name__)

T = TypeVar("T")

CONTROLLER = f"{names.GROUP}/operator"

MAX_WRITES: Final = 8
"""That are under way at once for one GPUJob; the Job controller is slower anyway."""

PLAN_MARGIN_SECONDS = 1.0
"""What is left of a plan when its write is given up: the write may still be under way."""


class Actor:
    """Writes to the API server and asks the plan API."""

    def __init__(
        self,
        api: Api,
        plans: PlanClient,
        *,
        defaults: pod.PodDefaults,
        reporter: str,
        tails: LogTails | None,
        provisioning: Provisioning | None = None,
    ) -> None:
        self._api = api
        self._plans = plans
        self._admission = PodAdmission(api)
        self._defaults = defaults
        self._provisioning = provisioning
        self._tails = tails
        self._events = EventWriter(api, Reporter(CONTROLLER, reporter, "Reconcile"))

    async def write_status(self, job: GpuJob, status: GpuJobStatus) -> GpuJob:
        """Replace the status of exactly the version that was looked at.

        Raises:
            Conflict: the GPUJob has changed since.
        """
        meta = job.metadata
        body = status_body("GPUJob", meta, status)
        return await self._api.replace(
            GPUJOBS, meta.name, body, namespace=meta.namespace, subresource="status"
        )

    async def plan(
        self, seen: CachedGpuJob, action: AskPlan, *, priority: int, in_doubt: bool
    ) -> Answer:
        """Ask for places, if the API server takes the first pod.

        Args:
            seen: the GPUJob.
            action: for which attempt.
            priority: the larger goes first.
            in_doubt: whether what it said of such pods before may no longer hold.
        """
        job = seen.job
        try:
            template = self.template(seen, action.attempt)
        except TemplateInvalid as error:
            return NotPlanned(reason=JobReason.INVALID_TEMPLATE, message=str(error), for_good=True)
        admitted = await self._admission.review(
            job,
            template,
            kind=pod.kind(job, seen.template, defaults=self._defaults),
            attempt=action.attempt,
            in_doubt=in_doubt,
        )
        if isinstance(admitted, NotPlanned):
            return admitted
        # The template stands in the PodSpec: twice, a large one would be beyond what is read.
        spec = msgspec.structs.replace(job.spec, template=None)
        meta = job.metadata
        answer = await self._ask(
            PlanRequest(
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                attempt=action.attempt,
                spec=spec,
                pod_spec=msgspec.Raw(admitted.spec or msgspec.json.encode(template["spec"])),
                avoid=action.avoid,
                resource_version=meta.resource_version,
                priority=priority,
                submitted_at=times.write(meta.creation_timestamp or self._api.clock.now()),
                waits_since=times.write(since) if (since := times.waits_since(job)) else None,
                seconds_left=times.seconds_left(job.spec, job.status),
                held_since=job.status.held_since,
            )
        )
        if isinstance(answer, Planned | Waits):
            return dataclasses.replace(answer, planned_pod=planned_pod(admitted.spec))
        return answer

    async def grow(self, seen: CachedGpuJob, action: AskGrowth) -> Answer:
        """Ask for the places of an attempt that runs, with those that are held for it now."""
        meta = seen.job.metadata
        request = PlanRequest(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            attempt=action.attempt,
            spec=msgspec.structs.replace(seen.job.spec, template=None),
            pod_spec=msgspec.Raw(b"{}"),
            resource_version=meta.resource_version,
            grows=True,
        )
        asked_at = time.monotonic()
        try:
            answer = await self._plans.ask(request)
        except PlanBusy:
            return PlanLater()
        except (PlanUnanswered, PlanInvalid) as error:
            log.warning("%s/%s does not grow now: %s", meta.namespace, meta.name, error)
            return NotGrown()
        if isinstance(answer, PlanRefusal):
            return NotGrown()
        seconds = answer.expires_seconds - (time.monotonic() - asked_at) - PLAN_MARGIN_SECONDS
        return Grown(answer.placement, seconds) if seconds > 0 else NotGrown()

    async def act(self, seen: CachedGpuJob, action: ApiWrite) -> Answer | None:
        """Carry out one action; an answer asks for another decision."""
        match action:
            case CreateChildren():
                return await self._create(seen, action)
            case CreateBeside():
                return await self._create_beside(seen, action)
            case DeleteGpuJob():
                await self._delete_gpujob(seen.job)
            case _:
                await self.patch(seen.job, (action,))
        return None

    async def patch(self, job: GpuJob, actions: Iterable[Patch]) -> None:
        """Carry out actions that have no answer; an attempt has one key, whatever its Jobs are."""
        wanted = tuple(actions)
        writes: list[Awaitable[None]] = [self._patched(job, action) for action in wanted]
        if job.spec.by_mpirun:
            ended = {action.attempt for action in wanted if isinstance(action, DeleteJob)}
            writes += [self._delete_key(job, attempt=attempt) for attempt in sorted(ended)]
        await _at_once(writes)

    async def _patched(self, job: GpuJob, action: Patch) -> None:
        match action:
            case DeleteJob():
                await self._delete(job, action)
            case StopJob():
                await self._patch_job(job, action.name, {"suspend": True})
            case SetDeadline():
                await self._patch_job(job, action.name, {"activeDeadlineSeconds": action.seconds})
            case EndPod():
                await self._end_pod(job, action)

    async def save_logs(self, job: GpuJob, wanted: SaveLogs) -> None:
        """Begin to save the last lines of an attempt, where logs are saved at all."""
        if self._tails is not None:
            await self._tails.save(job, wanted)

    async def post(self, job: GpuJob, notices: Iterable[Notice]) -> None:
        """Write events about the job."""
        for notice in notices:
            about = About(names.API_VERSION, "GPUJob", job.metadata)
            await self._events.write(about, Said(notice.type, str(notice.reason), notice.note))

    async def _ask(self, request: PlanRequest) -> Answer:
        asked_at = time.monotonic()
        try:
            answer = await self._plans.ask(request)
        except PlanBusy:
            return PlanLater()
        except PlanUnanswered as error:
            reason = JobReason.PLAN_DENIED if error.denied else JobReason.SCHEDULER_UNAVAILABLE
            return NotPlanned(reason=reason, message=str(error))
        except PlanInvalid as error:
            return NotPlanned(reason=JobReason.INVALID_TEMPLATE, message=str(error), for_good=True)
        if isinstance(answer, PlanRefusal):
            return _waits(answer, asked_at)
        return _planned(answer, asked_at, priority=request.priority)

    async def _create(self, seen: CachedGpuJob, action: CreateChildren) -> Answer | None:
        """Service and key first: where there is a Job, no later pass looks for them.

        A worker that is alone has nobody who looks for it.
        """
        try:
            template = self.template(seen, action.attempt)
        except TemplateInvalid as error:
            return NotCreated(reason=JobReason.INVALID_TEMPLATE, message=str(error), for_good=True)
        if self._provisioning is not None:
            template = consuming(template, seen.job, self._provisioning)
        container = pod.worker_container(seen.job, seen.template)
        template = with_gang_memory(
            template,
            seen.job,
            pods_of(seen.job.spec, seen.job.status.placement),
            attempt=action.attempt,
            container=container,
        )
        shared = shared_pods(seen.job, seen.job.status)
        if seen.job.spec.by_mpirun:
            template = mpi.with_pods(template, shared, container=container)
        if seen.job.spec.workers > 1:
            problem = await self._ensure(SERVICES, service(seen.job), seen.job)
            if problem:
                return problem
        if seen.job.spec.by_mpirun:
            problem = await self._ensure_key(seen.job, attempt=action.attempt)
            if problem:
                return problem
        self._admission.begins(seen.job.metadata.namespace)
        if shared:
            manifests = [
                job_of_pod(
                    seen.job,
                    template,
                    each,
                    attempt=action.attempt,
                    container=container,
                    deadline_seconds=action.deadline_seconds,
                )
                for each in shared
            ]
        else:
            manifests = [
                job_manifest(
                    seen.job,
                    template,
                    attempt=action.attempt,
                    nodes=nodes_of(seen.job.status.placement),
                    deadline_seconds=action.deadline_seconds,
                )
            ]
        problems = await _at_once(self._ensure(JOBS, each, seen.job) for each in manifests)
        found = [problem for problem in problems if problem]
        return min(found, key=lambda each: isinstance(each, NotYet), default=None)

    async def _create_beside(self, seen: CachedGpuJob, action: CreateBeside) -> Answer | None:
        """Where it cannot be created the attempt goes on without it."""
        worker = action.worker
        try:
            template = self.template(seen, action.attempt)
        except TemplateInvalid as error:
            return NotCreatedBeside(JobReason.INVALID_TEMPLATE, str(error))
        manifest = job_beside(
            seen.job, template, attempt=action.attempt, worker=worker, node=action.node
        )
        problem = await self._ensure(JOBS, manifest, seen.job)
        if isinstance(problem, NotCreated):
            return NotCreatedBeside(problem.reason, problem.message)
        return problem

    async def _ensure(
        self, resource: Resource[Any], body: Json, job: GpuJob
    ) -> NotCreated | NotYet | None:
        """Create a child; that it exists already is fine if it is ours."""
        namespace = job.metadata.namespace
        try:
            await self._api.create(resource, body, namespace=namespace)
        except errors.AlreadyExists:
            return await self._whose(resource, body["metadata"]["name"], job)
        except errors.Invalid as error:
            reason, said = JobReason.INVALID_TEMPLATE, error.said
            return NotCreated(reason=reason, message=said, for_good=True)
        except errors.Forbidden as error:
            reason, said = JobReason.CREATION_FORBIDDEN, error.said
            return NotCreated(reason=reason, message=said, for_good=False)
        return None

    async def _ensure_key(self, job: GpuJob, *, attempt: int) -> NotCreated | NotYet | None:
        """Create the Secret of an attempt; one that is there is of an earlier pass.

        Nobody else may make one of that name, and the operator may read none.
        """
        body = mpi.secret(job, attempt=attempt, key=secrets.token_bytes(mpi.KEY_BYTES))
        try:
            await self._api.create(SECRETS, body, namespace=job.metadata.namespace)
        except errors.AlreadyExists:
            log.debug("Secret %s is there already", body["metadata"]["name"])
        except errors.Forbidden as error:
            reason = JobReason.CREATION_FORBIDDEN
            return NotCreated(reason=reason, message=error.said, for_good=False)
        return None

    async def _delete_key(self, job: GpuJob, *, attempt: int) -> None:
        """Delete the Secret of an attempt; one that stays goes with the GPUJob."""
        secret = names.mpi_secret(job.metadata.uid, attempt=attempt)
        try:
            await self._api.delete(SECRETS, secret, namespace=job.metadata.namespace)
        except (errors.NotFound, errors.Forbidden) as error:
            log.debug("Secret %s is not deleted: %s", secret, error)

    async def _whose(
        self, resource: Resource[Any], name: str, job: GpuJob
    ) -> NotCreated | NotYet | None:
        try:
            found = await self._api.get(resource, name, namespace=job.metadata.namespace)
        except errors.NotFound:
            return NotYet()
        if found.metadata.deletion_timestamp or is_predecessor_s(found, job):
            return NotYet()
        if is_ours(found, job):
            return None
        message = (
            f"{body_kind(resource)} {name} exists and belongs to something else; "
            "delete it, or apply the GPUJob under another name"
        )
        return NotCreated(reason=JobReason.NAME_TAKEN, message=message, for_good=False)

    async def _delete(self, job: GpuJob, action: DeleteJob) -> None:
        try:
            namespace = job.metadata.namespace
            await self._api.delete(JOBS, action.name, namespace=namespace, uid=action.uid)
        except (errors.NotFound, errors.Conflict):
            log.debug("Job %s is gone already", action.name)

    async def _patch_job(self, job: GpuJob, name: str, spec: Json) -> None:
        try:
            await self._api.merge(JOBS, name, {"spec": spec}, namespace=job.metadata.namespace)
        except errors.NotFound:
            log.debug("Job %s is gone already", name)

    async def _end_pod(self, job: GpuJob, action: EndPod) -> None:
        """Have the kubelet end it, as at a deadline.

        Of a namesake the API server says that the uid cannot change.
        """
        body = {"metadata": {"uid": action.uid}, "spec": {"activeDeadlineSeconds": END_NOW}}
        try:
            await self._api.merge(PODS, action.name, body, namespace=job.metadata.namespace)
        except (errors.NotFound, errors.Conflict, errors.Invalid):
            log.debug("pod %s is gone already", action.name)

    async def _delete_gpujob(self, job: GpuJob) -> None:
        meta = job.metadata
        try:
            await self._api.delete(GPUJOBS, meta.name, namespace=meta.namespace, uid=meta.uid)
        except (errors.NotFound, errors.Conflict):
            log.debug("GPUJob %s is gone already", meta.name)

    async def admitted_template(self, seen: CachedGpuJob, attempt: int) -> Json:
        """The same with the PodSpec as admission makes it of the first pod.

        An autoscaler takes a PodTemplate's word for what the pods will ask for.

        Raises:
            TemplateInvalid: the user's template cannot be merged over ours.
            Invalid, Forbidden: the API server refuses the pod.
        """
        template = self.template(seen, attempt)
        spec = await self._admission.try_pod(first_pod(seen.job, template, attempt=attempt))
        return template if spec is None else template | {"spec": msgspec.json.decode(spec)}

    def template(self, seen: CachedGpuJob, attempt: int) -> Json:
        """The pod template of an attempt, not pinned to nodes.

        Raises:
            TemplateInvalid: the user's cannot be merged over ours.
        """
        return pod.template(seen.job, seen.template, attempt=attempt, defaults=self._defaults)


async def _at_once(writes: Iterable[Awaitable[T]]) -> list[T]:
    """Await writes, MAX_WRITES at once; the first error, if any, when all are over."""
    slots = asyncio.Semaphore(MAX_WRITES)

    async def one(write: Awaitable[T]) -> T:
        async with slots:
            return await write

    answers = await asyncio.gather(*map(one, writes), return_exceptions=True)
    done: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        done.append(answer)
    return done


def _planned(answer: PlanResponse, asked_at: float, *, priority: int) -> Answer:
    """The hold began at some moment after the question."""
    seconds = answer.expires_seconds - (time.monotonic() - asked_at) - PLAN_MARGIN_SECONDS
    if seconds > 0:
        return Planned(placement=answer.placement, seconds=seconds, priority=priority)
    message = f"a plan held for {answer.expires_seconds:.0f} s came too late to be written down"
    return NotPlanned(reason=JobReason.SCHEDULER_UNAVAILABLE, message=message)


def _waits(answer: PlanRefusal, asked_at: float) -> Answer:
    """A preemption is to be written as soon as a plan is."""
    seconds = None
    if answer.preemption is not None:
        passed = time.monotonic() - asked_at
        seconds = max(answer.expires_seconds - passed - PLAN_MARGIN_SECONDS, 0.0)
    return Waits(
        reason=answer.reason,
        message=answer.message,
        lasting=answer.lasting or answer.message,
        position=answer.position,
        preemption=answer.preemption,
        seconds=seconds,
        lacks_room=answer.lacks_room,
        queued=answer.queued,
    )


def body_kind(resource: Resource[Any]) -> str:
    """What people call it."""
    return resource.plural.removesuffix("s").capitalize()
