# SPDX-License-Identifier: Apache-2.0
"""Suspend, resume and rerun of a GPUJob, with the caller's own token."""

from typing import Annotated

from litestar import post
from litestar.datastructures import State
from litestar.params import Body

from gpupack_apiserver import problems
from gpupack_apiserver.errors import CallInvalid
from gpupack_apiserver.routes.allocations import IdempotencyKey
from gpupack_apiserver.routes.jobs import OneName, OneNamespace
from gpupack_apiserver.routes.parts import Call, parts_of, token_of
from gpupack_crds import lifecycle
from gpupack_crds.errors import LifecycleRefused
from gpupack_httpserver.user import User
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import AlreadyExists
from gpupack_restapi import PREFIX
from gpupack_restapi.jobs import Changed, Rerun

ONE_JOB = f"{PREFIX}/jobs/{{namespace:str}}/{{name:str}}"


RerunBody = Annotated[Rerun, Body(schema_extra={"additionalProperties": False})]


@post(
    f"{ONE_JOB}/suspend",
    tags=["jobs"],
    status_code=200,
    responses=problems.WRITES | problems.MISSING,
)
async def suspend(request: Call, state: State, namespace: OneNamespace, name: OneName) -> Changed:
    """Stop a GPUJob and release its GPUs, until it is resumed."""
    _, api = await _caller(request, state)
    return await _set(api, namespace, name, suspended=True)


@post(
    f"{ONE_JOB}/resume",
    tags=["jobs"],
    status_code=200,
    responses=problems.WRITES | problems.MISSING,
)
async def resume(request: Call, state: State, namespace: OneNamespace, name: OneName) -> Changed:
    """Put a suspended GPUJob back into the queue."""
    _, api = await _caller(request, state)
    return await _set(api, namespace, name, suspended=False)


@post(
    f"{ONE_JOB}/rerun",
    tags=["jobs"],
    status_code=201,
    responses=problems.WRITES | problems.MISSING,
)
async def rerun(
    request: Call,
    state: State,
    namespace: OneNamespace,
    name: OneName,
    data: RerunBody,
    key: IdempotencyKey = "",
) -> Changed:
    """Create a GPUJob of the same spec as one that has ended."""
    user, api = await _caller(request, state)
    identity = f"{user.username}\0{key}" if key else ""
    try:
        made = await lifecycle.rerun(
            api, name, namespace=namespace, new_name=data.name, identity=identity
        )
    except LifecycleRefused as error:
        raise CallInvalid("name", name, str(error)) from error
    except AlreadyExists as error:
        fix = f"use another: GPUJob {namespace}/{data.name} exists"
        raise CallInvalid("name", data.name, fix) from error
    return Changed(namespace, made.metadata.name, made.spec.suspend)


async def _caller(request: Call, state: State) -> tuple[User, Api]:
    """Return the caller, and the API server with the caller's token."""
    parts = parts_of(state)
    user = await parts.authenticate(request)
    return user, parts.api.on_behalf(token_of(request))


async def _set(api: Api, namespace: str, name: str, *, suspended: bool) -> Changed:
    try:
        job = await lifecycle.set_suspended(api, name, namespace=namespace, suspended=suspended)
    except LifecycleRefused as error:
        raise CallInvalid("name", name, str(error)) from error
    return Changed(namespace, name, bool(job.spec.get("suspend")))
