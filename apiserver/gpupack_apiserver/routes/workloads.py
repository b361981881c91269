# SPDX-License-Identifier: Apache-2.0
"""The caller's own program on the GPUs of an allocation, in place of the one that does nothing.

It is a higher revision of the allocation's GPUJob, which the caller writes with its own token: the
running program ends, the GPUs are kept, and the new program starts on them. It ends with the
allocation.
"""

import hashlib
from typing import Annotated, Final

from litestar import post
from litestar.datastructures import State
from litestar.params import Body

from gpupack_apiserver import problems
from gpupack_apiserver.errors import CallInvalid, no_allocation
from gpupack_apiserver.placed_process import ALLOCATION
from gpupack_apiserver.routes.allocations import (
    ONE_ALLOCATION,
    IdempotencyKey,
    allocation_view,
    wait_until_settled,
)
from gpupack_apiserver.routes.jobs import OneName, OneNamespace
from gpupack_apiserver.routes.parts import Call, parts_of, token_of
from gpupack_apiserver.shown_job import SHOWN_JOBS, ShownJob
from gpupack_crds import names
from gpupack_crds.gpujob_status import ENDED_PHASES
from gpupack_kubeclient import conflicts
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import NotFound
from gpupack_kubeclient.objects import Json
from gpupack_restapi.allocations import Allocation, Workload

KEY_ANNOTATION: Final = f"{names.GROUP}/workload-key"
"""Hashed key of the call that wrote the running workload."""
MAX_TRIES: Final = 4
"""More than one try is needed because operator and caller write the same object."""


WorkloadBody = Annotated[Workload, Body(schema_extra={"additionalProperties": False})]


@post(
    f"{ONE_ALLOCATION}/workload",
    tags=["allocations"],
    status_code=200,
    responses=problems.WRITES | problems.MISSING,
)
async def run_workload(
    request: Call,
    state: State,
    namespace: OneNamespace,
    name: OneName,
    data: WorkloadBody,
    key: IdempotencyKey = "",
) -> Allocation:
    """Run a program on the GPUs of an allocation; the program that runs there is stopped.

    The call waits some seconds for its start. The allocation's time limit does not change.
    """
    parts = parts_of(state)
    user = await parts.authenticate(request)
    api = parts.api.on_behalf(token_of(request))
    await parts.rights.require_namespace(user, "gpujobs", namespace)
    digest = _digest(user.username, key)
    written = await _write(api, namespace, name, data, digest)
    return allocation_view(
        parts, await wait_until_settled(parts, written, revision=written.spec.revision)
    )


async def _write(api: Api, namespace: str, name: str, workload: Workload, digest: str) -> ShownJob:
    """Write the workload once, retried on conflicts.

    Raises:
        Missing: there is no such allocation.
        CallInvalid: it has ended.
        Conflict: other writes came in between each time.
    """

    async def once() -> ShownJob:
        try:
            job = await api.get(SHOWN_JOBS, name, namespace=namespace)
            if ALLOCATION not in job.metadata.labels:
                raise no_allocation(namespace, name)
            if digest and job.metadata.annotations.get(KEY_ANNOTATION) == digest:
                return job
            if job.status.phase in ENDED_PHASES or job.metadata.deletion_timestamp is not None:
                raise CallInvalid("name", name, "create another: this allocation has ended")
            return await api.merge(
                SHOWN_JOBS, name, _patch(job, workload, digest), namespace=namespace
            )
        except NotFound as error:
            raise no_allocation(namespace, name) from error

    return await conflicts.retried(once, tries=MAX_TRIES)


def _patch(job: ShownJob, workload: Workload, digest: str) -> Json:
    """Return a patch for exactly this version."""
    worker: Json = {
        "name": names.WORKER_CONTAINER,
        "image": workload.image,
        "command": workload.command,
        "env": [{"name": name, "value": value} for name, value in workload.environment.items()],
    }
    user = {"runAsNonRoot": True} if workload.non_root else None
    return {
        "metadata": {
            "resourceVersion": job.metadata.resource_version,
            "uid": job.metadata.uid,
            "annotations": {KEY_ANNOTATION: digest or None},
        },
        "spec": {
            "revision": job.spec.revision + 1,
            # The placeholder's pull secrets would replace the service account's.
            "template": {
                "spec": {"securityContext": user, "imagePullSecrets": None, "containers": [worker]}
            },
        },
    }


def _digest(username: str, key: str) -> str:
    return hashlib.sha256(f"{username}\0{key}".encode()).hexdigest() if key else ""
