# SPDX-License-Identifier: Apache-2.0
"""The call for settings that may change while the API runs."""

import msgspec
from litestar import post
from litestar.datastructures import State

from gpupack_apiserver import problems
from gpupack_apiserver.config import Change
from gpupack_apiserver.routes.parts import PREFIX, Call, parts_of, token_of


class Reloaded(msgspec.Struct, frozen=True):
    """The settings that changed when the file was read."""

    changed: list[Change]


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
    return Reloaded(parts.config.reload())
