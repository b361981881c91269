# SPDX-License-Identifier: Apache-2.0
"""Execution of decisions: the only module that writes."""

import logging
from collections.abc import Awaitable, Iterable

from gpupack_crds import names
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.kinds import GPUJOBS, GpuJob, status_body
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.events import About, EventWriter, Reporter, Said
from gpupack_kubeclient.objects import Json
from gpupack_kubeclient.resources import JOBS, PODS
from gpupack_operator.cache import CachedGpuJob
from gpupack_operator.children import Children
from gpupack_operator.concurrent_writes import gather_writes
from gpupack_operator.decision.cleanup import END_NOW
from gpupack_operator.decision.model import (
    Answer,
    ApiWrite,
    CreateChildren,
    CreateExtraWorker,
    DeleteGpuJob,
    DeleteJob,
    EndPod,
    Patch,
    SaveLogs,
    SetDeadline,
    StopJob,
)
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.decision.notices import Notice
from gpupack_operator.log_tails import LogTails
from gpupack_operator.manifests import pod
from gpupack_operator.planner import Planner
from gpupack_operator.plans import PlanClient
from gpupack_operator.pod_admission import PodAdmission

log = logging.getLogger(__name__)

CONTROLLER = f"{names.GROUP}/operator"


class Actor:
    """Writer to the API server, with a planner that requests placements."""

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
        admission = PodAdmission(api)
        self.planner = Planner(
            plans, admission, defaults=defaults, provisioning=provisioning, clock=api.clock
        )
        self._children = Children(api, admission, defaults=defaults, provisioning=provisioning)
        self._tails = tails
        self._events = EventWriter(api, Reporter(CONTROLLER, reporter, "Reconcile"))

    async def write_status(self, job: GpuJob, status: GpuJobStatus) -> GpuJob:
        """Replace the status of exactly the version that was observed.

        Raises:
            Conflict: the GPUJob has changed since then.
        """
        meta = job.metadata
        body = status_body("GPUJob", meta, status)
        return await self._api.replace(
            GPUJOBS, meta.name, body, namespace=meta.namespace, subresource="status"
        )

    async def act(self, seen: CachedGpuJob, action: ApiWrite) -> Answer | None:
        """Execute one action; an answer requires another decision."""
        match action:
            case CreateChildren():
                return await self._children.create(seen, action)
            case CreateExtraWorker():
                return await self._children.create_extra_worker(seen, action)
            case DeleteGpuJob():
                await self._delete_gpujob(seen.job)
            case _:
                await self.patch(seen.job, (action,))
        return None

    async def patch(self, job: GpuJob, actions: Iterable[Patch]) -> None:
        """Execute actions that have no answer; an attempt has one key, whatever its Jobs are."""
        wanted = tuple(actions)
        writes: list[Awaitable[None]] = [self._patched(job, action) for action in wanted]
        if job.spec.by_mpirun:
            ended = {action.attempt for action in wanted if isinstance(action, DeleteJob)}
            writes += [self._children.delete_key(job, attempt=number) for number in sorted(ended)]
        await gather_writes(writes)

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
        """Begin to save the last lines of an attempt, if saving logs is enabled."""
        if self._tails is not None:
            await self._tails.save(job, wanted)

    async def post_events(self, job: GpuJob, notices: Iterable[Notice]) -> None:
        """Write events about the job."""
        for notice in notices:
            about = About(names.API_VERSION, "GPUJob", job.metadata)
            await self._events.write(about, Said(notice.type, str(notice.reason), notice.note))

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
        """Let the kubelet end the pod, as at a deadline.

        For another pod of the same name the API server answers that the UID cannot change.
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
