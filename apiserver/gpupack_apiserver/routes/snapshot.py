# SPDX-License-Identifier: Apache-2.0
"""The state of the cluster in the simulator's format."""

import asyncio
from typing import Any, Final

from litestar import get
from litestar.datastructures import State

from gpupack_apiserver import problems
from gpupack_apiserver.routes.parts import Call, caller_of, parts_of
from gpupack_placement import dump
from gpupack_restapi import PREFIX

_ONE_AT_A_TIME: Final = asyncio.Lock()
"""One snapshot at a time: for a large cluster it takes some tens of MiB for a moment."""


@get(f"{PREFIX}/snapshot", tags=["cluster"], responses=problems.REFUSALS)
async def snapshot(request: Call, state: State) -> dict[str, Any]:
    """Return nodes, GPUs and holders in the simulator's format; pods are named by their UIDs.

    It is computed in a thread, from a copy, so that no other call waits for it.
    """
    parts = parts_of(state)
    await parts.authenticate(request)
    await parts.rights.require_path(caller_of(request), "/snapshot")
    async with _ONE_AT_A_TIME:
        return await asyncio.to_thread(dump, parts.model.ledger.cluster.fork())
