# SPDX-License-Identifier: Apache-2.0
"""The call for settings that may change while the API runs."""

from litestar import post
from litestar.datastructures import State

from gpupack_apiserver import problems
from gpupack_apiserver.routes.parts import Call, parts_of, token_of
from gpupack_restapi import PREFIX
from gpupack_restapi.config import Reloaded


@post(
    f"{PREFIX}/config/reload",
    tags=["config"],
    status_code=200,
    responses=problems.REFUSALS | problems.MISSING | problems.UNUSABLE,
)
async def reload(request: Call, state: State) -> Reloaded:
    """Read the configuration file again; the server also checks it every ten seconds.

    A file that is not valid changes nothing, and is answered 422 with field, value and fix.
    """
    parts = parts_of(state)
    user = await parts.authenticate(request)
    token_of(request)
    await parts.rights.require_administrator(user)
    return Reloaded(tuple(parts.config.reload()))
