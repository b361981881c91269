# SPDX-License-Identifier: Apache-2.0
"""ProvisioningRequests in the API server: creates, reads and deletes those of GPUJobs.

The PodTemplate is created first and deleted last: cluster-autoscaler considers a request without
one an error. The cluster may not have the kind at all: that is an answer, not a failure.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.objects import Condition, Json, ProvisioningRequest
from gpupack_kubeclient.resources import POD_TEMPLATES, PROVISIONING_REQUESTS, Resource
from gpupack_operator.cache import CachedGpuJob
from gpupack_operator.decision.nodes import (
    CreateNodesRequest,
    DeleteNodesRequest,
    NodesRequestCreated,
    NodesRequestDeleted,
    NodesRequestRefused,
    ObservedRequest,
    Provisioning,
)
from gpupack_operator.errors import TemplateInvalid
from gpupack_operator.manifests import provisioning
from gpupack_operator.manifests.owner import is_from_predecessor, is_ours

log = logging.getLogger(__name__)

NO_KIND = (
    "the cluster has no ProvisioningRequests (autoscaling.x-k8s.io/v1): install the CRD of its "
    "cluster-autoscaler, or set provisioning.enabled to false"
)

ENDS = ("Failed", "CapacityRevoked", "BookingExpired")
"""Conditions after which a request brings no nodes."""


class NodesRequests:
    """Client for the node requests of all GPUJobs.

    Args:
        api: the API server.
        settings: how nodes are requested; None: not at all, requests are only returned.
        template: the pod template of a GPUJob's attempt, after admission.
    """

    def __init__(
        self,
        api: Api,
        settings: Provisioning | None,
        template: Callable[[CachedGpuJob, int], Awaitable[Json]],
    ) -> None:
        self._api = api
        self.settings = settings
        self._template = template

    async def observe(self, job: GpuJob) -> ObservedRequest | None:
        """Return the state of the open request; None: there is none to read.

        Raises:
            KubeError: the request could not be read.
        """
        request = job.status.nodes_request
        if (
            self.settings is None
            or request is None
            or request.state not in {"Requested", "Provisioned"}
        ):
            return None
        name = names.nodes_request(job.metadata.name, number=request.number)
        try:
            namespace = job.metadata.namespace
            found = await self._api.get(PROVISIONING_REQUESTS, name, namespace=namespace)
        except errors.NotFound:
            return ObservedRequest("Gone")
        if not is_ours(found, job) or found.metadata.deletion_timestamp is not None:
            return ObservedRequest("Gone")
        return _observed(found)

    async def create(
        self, seen: CachedGpuJob, action: CreateNodesRequest
    ) -> NodesRequestCreated | NodesRequestRefused | None:
        """Create both objects; existing ones are no error if they belong to the GPUJob.

        None: an object of that name is being deleted.
        """
        job = seen.job
        try:
            bodies = await self._bodies(seen, action)
            for resource, body in bodies:
                if not await self._ensure(resource, body, job):
                    return None
        except errors.NotFound:
            return NodesRequestRefused(NO_KIND)
        except (errors.Invalid, errors.Forbidden) as error:
            return NodesRequestRefused(f"the API server refuses: {error.said}")
        except (TemplateInvalid, _NameTaken) as error:
            return NodesRequestRefused(str(error))
        return NodesRequestCreated()

    async def _bodies(
        self, seen: CachedGpuJob, action: CreateNodesRequest
    ) -> tuple[tuple[Resource[Any], Json], ...]:
        job, settings = seen.job, self.settings
        if settings is None:
            return ()
        template = await self._template(seen, job.status.attempt + 1)
        of_pods = provisioning.pod_template(job, template, number=action.number)
        request = provisioning.provisioning_request(job, settings, number=action.number)
        return (POD_TEMPLATES, of_pods), (PROVISIONING_REQUESTS, request)

    async def delete(self, job: GpuJob, action: DeleteNodesRequest) -> NodesRequestDeleted:
        """Delete both objects, if they belong to the GPUJob.

        If the operator has lost that right, garbage collection deletes them with the GPUJob.
        """
        name = names.nodes_request(job.metadata.name, number=action.number)
        for resource in (PROVISIONING_REQUESTS, POD_TEMPLATES):
            try:
                await self._delete(resource, name, job)
            except errors.Forbidden as error:
                log.warning("%s/%s stays: %s", job.metadata.namespace, name, error)
        return NodesRequestDeleted()

    async def _delete(self, resource: Resource[Any], name: str, job: GpuJob) -> None:
        namespace = job.metadata.namespace
        try:
            found = await self._api.get(resource, name, namespace=namespace)
            if is_ours(found, job):
                await self._api.delete(resource, name, namespace=namespace, uid=found.metadata.uid)
        except (errors.NotFound, errors.Conflict):
            log.debug("%s %s is gone already", resource.plural, name)

    async def _ensure(self, resource: Resource[Any], body: Json, job: GpuJob) -> bool:
        """Create an object and tell whether it exists.

        False means that a predecessor's object is still being deleted.
        """
        name, namespace = body["metadata"]["name"], job.metadata.namespace
        try:
            await self._api.create(resource, body, namespace=namespace)
        except errors.AlreadyExists:
            try:
                found = await self._api.get(resource, name, namespace=namespace)
            except errors.NotFound:
                return False
            if found.metadata.deletion_timestamp or is_from_predecessor(found, job):
                return False
            if not is_ours(found, job):
                raise _NameTaken(
                    f"{body['kind']} {name} exists and belongs to something else; delete it, or "
                    "apply the GPUJob under another name"
                ) from None
        return True


class _NameTaken(Exception):
    """Another object has the name."""


def _observed(request: ProvisioningRequest) -> ObservedRequest:
    true = {each.type: each for each in request.status.conditions if each.status == "True"}
    for kind in ENDS:
        if kind in true:
            return ObservedRequest("Failed", _describe_condition(true[kind]))
    return ObservedRequest("Provisioned" if "Provisioned" in true else "Open")


def _describe_condition(condition: Condition) -> str:
    words = f"{condition.type} ({condition.reason})" if condition.reason else condition.type
    return f"{words}: {condition.message}" if condition.message else words
