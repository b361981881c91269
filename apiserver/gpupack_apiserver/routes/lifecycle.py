# SPDX-License-Identifier: Apache-2.0
"""Suspend, resume and rerun of a GPUJob, with the caller's own token."""

from typing import Annotated

import msgspec
from litestar import post
from litestar.datastructures import State
from litestar.params import Body

from gpupack_apiserver import problems
from gpupack_apiserver.errors import CallInvalid
from gpupack_apiserver.patterns import NAME_OR_EMPTY
from gpupack_apiserver.routes.allocations import IdempotencyKey
from gpupack_apiserver.routes.jobs import OneName, OneNamespace
from gpupack_apiserver.routes.parts import PREFIX, Call, parts_of, token_of
from gpupack_crds import lifecycle
from gpupack_crds.errors import LifecycleRefused
from gpupack_crds.names import MAX_JOB_NAME
from gpupack_httpserver.user import User
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import AlreadyExists

ONE_JOB = f"{PREFIX}/jobs/{{namespace:str}}/{{name:str}}"


class Rerun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a rerun.

    Attributes:
        name: name of the new job; empty: NAME-rerun-N, the first that is free.
    """

    name: Annotated[str, msgspec.Meta(max_length=MAX_JOB_NAME, pattern=NAME_OR_EMPTY)] = ""


RerunBody = Annotated[Rerun, Body(schema_extra={"additionalProperties": False})]


class Changed(msgspec.Struct, frozen=True):
    """The GPUJob that was written; `suspended` is the present value in its spec."""

    namespace: str
    name: str
    suspended: bool


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
