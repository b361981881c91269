# SPDX-License-Identifier: Apache-2.0
"""Creation of what an attempt needs: Service, key of mpirun, Jobs."""

import dataclasses
import logging
import secrets
from typing import Any

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_crds.worker_pods import shares_pods
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.objects import Json
from gpupack_kubeclient.resources import JOBS, SECRETS, SERVICES, Resource
from gpupack_operator.cache import CachedGpuJob
from gpupack_operator.concurrent_writes import gather_writes
from gpupack_operator.decision.model import (
    Answer,
    CreateChildren,
    CreateExtraWorker,
    CreationFailure,
    ExtraWorkerCreationFailure,
    NameInUse,
)
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.errors import TemplateInvalid
from gpupack_operator.manifests import mpi, pod
from gpupack_operator.manifests.gang import GangAttempt, jobs_of_gang
from gpupack_operator.manifests.job import extra_worker_job
from gpupack_operator.manifests.owner import is_from_predecessor, is_ours
from gpupack_operator.manifests.service import service
from gpupack_operator.pod_admission import OVER_QUOTA, PodAdmission

log = logging.getLogger(__name__)


class Children:
    """Creator of the objects of attempts; an object that exists already is no error.

    Args:
        api: the API server.
        admission: is notified that pods are about to be created.
        defaults: defaults of worker pods.
        provisioning: how nodes are requested; None: not at all.
    """

    def __init__(
        self,
        api: Api,
        admission: PodAdmission,
        *,
        defaults: pod.PodDefaults,
        provisioning: Provisioning | None,
    ) -> None:
        self._api = api
        self._admission = admission
        self._defaults = defaults
        self._provisioning = provisioning

    async def create(self, seen: CachedGpuJob, action: CreateChildren) -> Answer | None:
        """Create Service and key first: once there is a Job, no later pass checks them.

        A job with one worker needs no Service. Where the spec leaves it open whether workers share
        pods, a shared pod that the API server calls invalid does not fail the job: the next attempt
        has a pod for each worker.
        """
        attempt = GangAttempt(
            seen.job, seen.template, action.attempt, action.deadline_seconds, seen.kinds
        )
        try:
            jobs = jobs_of_gang(attempt, self._defaults, self._provisioning)
        except TemplateInvalid as error:
            return CreationFailure(
                reason=JobReason.INVALID_TEMPLATE, message=str(error), permanent=True
            )
        if seen.job.spec.workers > 1:
            problem = await self._ensure(SERVICES, service(seen.job), seen.job)
            if problem:
                return problem
        if seen.job.spec.by_mpirun:
            problem = await self._ensure_key(seen.job, attempt=action.attempt)
            if problem:
                return problem
        self._admission.begins(seen.job.metadata.namespace)
        problems = await gather_writes(self._ensure(JOBS, each, seen.job) for each in jobs)
        found = [problem for problem in problems if problem]
        problem = min(found, key=lambda each: isinstance(each, NameInUse), default=None)
        is_open = seen.job.spec.pod_per_worker is None and shares_pods(seen.job.status)
        if isinstance(problem, CreationFailure) and is_open and _is_of_shared_pods(problem):
            reason = JobReason.SHARED_POD_REJECTED
            return dataclasses.replace(problem, reason=reason, permanent=False)
        return problem

    async def create_extra_worker(
        self, seen: CachedGpuJob, action: CreateExtraWorker
    ) -> Answer | None:
        """Create the Job of an extra worker; if that fails, the attempt continues without it."""
        worker = action.worker
        try:
            template = pod.template(
                seen.job, seen.template, attempt=action.attempt, defaults=self._defaults
            )
        except TemplateInvalid as error:
            return ExtraWorkerCreationFailure(JobReason.INVALID_TEMPLATE, str(error))
        manifest = extra_worker_job(
            seen.job, template, attempt=action.attempt, worker=worker, node=action.node
        )
        problem = await self._ensure(JOBS, manifest, seen.job)
        if isinstance(problem, CreationFailure):
            return ExtraWorkerCreationFailure(problem.reason, problem.message)
        return problem

    async def _ensure(
        self, resource: Resource[Any], body: Json, job: GpuJob
    ) -> CreationFailure | NameInUse | None:
        """Create a child; one that exists already is no error if it belongs to the GPUJob."""
        namespace = job.metadata.namespace
        try:
            await self._api.create(resource, body, namespace=namespace)
        except errors.AlreadyExists:
            return await self._check_owner(resource, body["metadata"]["name"], job)
        except errors.Invalid as error:
            reason, said = JobReason.INVALID_TEMPLATE, error.said
            return CreationFailure(reason=reason, message=said, permanent=True)
        except errors.Forbidden as error:
            reason, said = JobReason.CREATION_FORBIDDEN, error.said
            return CreationFailure(reason=reason, message=said, permanent=False)
        except errors.Refused as error:
            if not error.is_too_large:
                raise
            said = f"{_kind_of(resource)} {body['metadata']['name']} is too large: {error.said}"
            return CreationFailure(reason=JobReason.INVALID_TEMPLATE, message=said, permanent=True)
        return None

    async def _ensure_key(self, job: GpuJob, *, attempt: int) -> CreationFailure | NameInUse | None:
        """Create the Secret of an attempt; an existing one comes from an earlier pass.

        No other client may create a Secret of that name, and the operator may read none.
        """
        body = mpi.secret(job, attempt=attempt, key=secrets.token_bytes(mpi.KEY_BYTES))
        try:
            await self._api.create(SECRETS, body, namespace=job.metadata.namespace)
        except errors.AlreadyExists:
            log.debug("Secret %s is there already", body["metadata"]["name"])
        except errors.Forbidden as error:
            reason = JobReason.CREATION_FORBIDDEN
            return CreationFailure(reason=reason, message=error.said, permanent=False)
        return None

    async def delete_key(self, job: GpuJob, *, attempt: int) -> None:
        """Delete the Secret of an attempt; one that remains is deleted with the GPUJob."""
        secret = names.mpi_secret(job.metadata.uid, attempt=attempt)
        try:
            await self._api.delete(SECRETS, secret, namespace=job.metadata.namespace)
        except (errors.NotFound, errors.Forbidden) as error:
            log.debug("Secret %s is not deleted: %s", secret, error)

    async def _check_owner(
        self, resource: Resource[Any], name: str, job: GpuJob
    ) -> CreationFailure | NameInUse | None:
        try:
            found = await self._api.get(resource, name, namespace=job.metadata.namespace)
        except errors.NotFound:
            return NameInUse()
        if found.metadata.deletion_timestamp or is_from_predecessor(found, job):
            return NameInUse()
        if is_ours(found, job):
            return None
        message = (
            f"{_kind_of(resource)} {name} exists and belongs to something else; "
            "delete it, or apply the GPUJob under another name"
        )
        return CreationFailure(reason=JobReason.NAME_CONFLICT, message=message, permanent=False)


def _is_of_shared_pods(problem: CreationFailure) -> bool:
    """Tell whether a Job may be refused because its workers share a pod.

    A quota's refusal never is.
    """
    if problem.reason == JobReason.CREATION_FORBIDDEN:
        return OVER_QUOTA not in problem.message
    return problem.reason == JobReason.INVALID_TEMPLATE


def _kind_of(resource: Resource[Any]) -> str:
    """Return the kind's usual name."""
    return resource.plural.removesuffix("s").capitalize()
