# SPDX-License-Identifier: Apache-2.0
"""GPUs that are held for use outside the cluster's pods: GPUJobs that do nothing.

Each write (create, change, delete) carries the caller's own token, so that the API server
authorizes the caller, its quotas and policies apply, and its audit names the caller. This process
has no write permissions.
"""

import asyncio
import hashlib
import math
import secrets
import time
from typing import Annotated, Final

from litestar import delete, get, post
from litestar.datastructures import State
from litestar.params import Body, HeaderParameter

from gpupack.training_config import BYTES_PER_GB, BYTES_PER_MIB
from gpupack_apiserver import problems
from gpupack_apiserver.errors import CallInvalid, no_allocation
from gpupack_apiserver.job_views import worker_views
from gpupack_apiserver.placed_process import ALLOCATION
from gpupack_apiserver.routes.jobs import OneName, OneNamespace
from gpupack_apiserver.routes.parts import Call, Parts, parts_of, token_of
from gpupack_apiserver.routes.validation import gang_of
from gpupack_apiserver.shown_job import SHOWN_JOBS, ShownJob
from gpupack_crds import names
from gpupack_crds.gpujob_status import ENDED_PHASES
from gpupack_httpserver.user import User
from gpupack_kubeclient.errors import AlreadyExists, NotFound
from gpupack_kubeclient.objects import Json
from gpupack_restapi import PREFIX
from gpupack_restapi.allocations import Allocate, Allocation, GpuConfig, WorkerConfig

WAIT_SECONDS: Final = 8.0
"""Seconds that a call waits for its GPUs; clients give up after ten, or later."""

POLL_SECONDS: Final = 0.05
ACCOUNT: Final = "system:serviceaccount:"
ONE_ALLOCATION: Final = f"{PREFIX}/allocations/{{namespace:str}}/{{name:str}}"
HOLD: Final = (
    "python3",
    "-c",
    "import os, signal; signal.signal(signal.SIGTERM, lambda *_: os._exit(143)); signal.pause()",
)
"""The first process of a container gets no signal for which it has no handler."""

IdempotencyKey = Annotated[
    str,
    HeaderParameter(
        name="Idempotency-Key",
        description="Calls of one user with the same key create one allocation.",
        max_length=128,
    ),
]


AllocateBody = Annotated[Allocate, Body(schema_extra={"additionalProperties": False})]


@post(f"{PREFIX}/allocate", tags=["allocations"], status_code=201, responses=problems.WRITES)
async def allocate(
    request: Call, state: State, data: AllocateBody, key: IdempotencyKey = ""
) -> Allocation:
    """Hold GPUs until they are released or their time has passed.

    The call waits some seconds for them. Where they are not free by then, the answer has `success`
    false: the allocation is pending in the queue, and can be read and released.
    """
    parts = parts_of(state)
    user = await parts.authenticate(request)
    api = parts.api.on_behalf(token_of(request))
    namespace = data.namespace or _own_namespace(user)
    name = allocation_name(f"{user.username}\0{key}" if key else "")
    manifest = _manifest(parts, data, name)
    try:
        made = await api.create(SHOWN_JOBS, manifest, namespace=namespace)
    except AlreadyExists:
        made = await api.get(SHOWN_JOBS, name, namespace=namespace)
        if ALLOCATION not in made.metadata.labels:
            fix = f"use another: GPUJob {namespace}/{name} has its name and is no allocation"
            raise CallInvalid("Idempotency-Key", key, fix) from None
    return allocation_view(parts, await wait_until_settled(parts, made))


@get(
    ONE_ALLOCATION,
    tags=["allocations"],
    responses=problems.REFUSALS | problems.MISSING,
)
async def allocation(
    request: Call, state: State, namespace: OneNamespace, name: OneName
) -> Allocation:
    """Show an allocation."""
    parts = parts_of(state)
    user = await parts.authenticate(request)
    await parts.rights.require_namespace(user, "gpujobs", namespace)
    return allocation_view(parts, _find(parts, namespace, name))


@delete(
    ONE_ALLOCATION,
    tags=["allocations"],
    responses=problems.WRITES | problems.MISSING,
)
async def release(request: Call, state: State, namespace: OneNamespace, name: OneName) -> None:
    """Release the GPUs of an allocation."""
    parts = parts_of(state)
    user = await parts.authenticate(request)
    api = parts.api.on_behalf(token_of(request))
    await parts.rights.require_namespace(user, "gpujobs", namespace)
    job = _find(parts, namespace, name)
    try:
        await api.delete(SHOWN_JOBS, name, namespace=namespace, uid=job.metadata.uid)
    except NotFound as error:
        raise no_allocation(namespace, name) from error


def _find(parts: Parts, namespace: str, name: str) -> ShownJob:
    job = parts.model.jobs.by_key.get((namespace, name))
    if job is None or ALLOCATION not in job.metadata.labels:
        raise no_allocation(namespace, name)
    return job


def _own_namespace(user: User) -> str:
    if not user.username.startswith(ACCOUNT):
        raise CallInvalid("namespace", "", "name the namespace whose quota it counts against")
    return user.username.removeprefix(ACCOUNT).partition(":")[0]


def allocation_name(identity: str) -> str:
    """Return a name that is the same for the same identity; without one it is random."""
    if not identity:
        return f"allocation-{secrets.token_hex(6)}"
    return f"allocation-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _manifest(parts: Parts, body: Allocate, name: str) -> Json:
    gang = gang_of(body, parts.model.ledger.cluster)
    placeholder = parts.placeholder
    memory = math.ceil(body.memory_gb * BYTES_PER_GB / BYTES_PER_MIB)
    spec: Json = {
        "workers": gang.workers,
        "gpus": gang.roles[0].request.gpus,
        "activeDeadlineSeconds": body.seconds,
        "ttlSecondsAfterFinished": 600,
        "template": {
            "spec": {
                "securityContext": {"runAsNonRoot": True},
                "imagePullSecrets": [{"name": name} for name in placeholder.pull_secrets],
                "containers": [
                    {
                        "name": names.WORKER_CONTAINER,
                        "image": placeholder.image,
                        "imagePullPolicy": placeholder.pull_policy,
                        "command": list(HOLD),
                    }
                ],
            }
        },
    }
    if body.gpu_type:
        spec["gpuModels"] = [body.gpu_type]
    if memory:
        spec["minMemory"] = f"{memory}Mi"
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUJob",
        "metadata": {"name": name, "labels": {ALLOCATION: "true"}},
        "spec": spec,
    }


async def wait_until_settled(parts: Parts, made: ShownJob, *, revision: int = 0) -> ShownJob:
    """Wait until the job runs with this revision or has ended, for a limited time; return it."""
    ends = time.monotonic() + WAIT_SECONDS
    job = made
    while time.monotonic() < ends and not _is_settled(job, revision):
        await asyncio.sleep(POLL_SECONDS)
        seen = parts.model.jobs.by_key.get(made.key)
        # The watch may not know yet that an earlier job of that name is gone.
        if seen is not None and seen.metadata.uid == made.metadata.uid:
            job = seen
    return job


def _is_settled(job: ShownJob, revision: int) -> bool:
    return _is_running(job, revision) or job.status.phase in ENDED_PHASES


def _is_running(job: ShownJob, revision: int) -> bool:
    return job.status.phase == "Running" and job.status.revision >= revision


def allocation_view(parts: Parts, job: ShownJob) -> Allocation:
    """Return a job in the form of an allocation."""
    is_leaving = job.metadata.deletion_timestamp is not None
    runs = _is_running(job, job.spec.revision) and not is_leaving
    workers = tuple(
        WorkerConfig(
            each.node,
            tuple(device.index for device in each.devices if device.index is not None),
            tuple(device.uuid for device in each.devices),
        )
        for each in (worker_views(job, parts.model.ledger.cluster) if runs else ())
    )
    first = workers[0] if workers else None
    return Allocation(
        success=runs,
        allocation_id="/".join(job.key),
        node_name=first.node_name if first else "",
        gpu_config=GpuConfig(
            gpu_count=sum(len(each.device_uuids) for each in workers),
            workers=workers,
            environment={"CUDA_VISIBLE_DEVICES": ",".join(first.device_uuids)} if first else {},
        ),
        phase=job.status.phase,
        message="it is being released" if is_leaving else job.status.message,
        expires=job.ends_at,
    )
