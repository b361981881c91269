# SPDX-License-Identifier: Apache-2.0
"""Holders of GPUs, in the namespaces whose pods the caller may list."""

import heapq
from typing import Annotated, Final

from litestar import get
from litestar.datastructures import State
from litestar.params import QueryParameter

from gpupack_apiserver import problems
from gpupack_apiserver.holders import holder_view, list_holds
from gpupack_apiserver.patterns import HOLDER_CURSOR, require_cursor
from gpupack_apiserver.rights import PODS
from gpupack_apiserver.routes.jobs import Namespace
from gpupack_apiserver.routes.parts import Call, parts_of
from gpupack_restapi import PREFIX
from gpupack_restapi.holders import Holders

MAX_LISTED: Final = 5000

Limit = Annotated[int, QueryParameter(description="Maximum entries.", ge=1, le=MAX_LISTED)]
Node = Annotated[str, QueryParameter(description="Only this node.", max_length=253)]
After = Annotated[
    str,
    QueryParameter(description="`next` of the previous page.", max_length=400),
]


@get(f"{PREFIX}/holders", tags=["jobs"], responses=problems.REFUSALS)
async def holders(
    request: Call,
    state: State,
    namespace: Namespace = "",
    node: Node = "",
    limit: Limit = 500,
    after: After = "",
) -> Holders:
    """List pods with the GPUs that they hold, one entry for each GPU or share of one."""
    require_cursor(after, HOLDER_CURSOR)
    parts = parts_of(state)
    user = await parts.authenticate(request)
    found = list_holds(parts.model.ledger, parts.model.jobs.by_key)
    known = [each for each in found if node in ("", each.node)]
    seen = await parts.rights.visible(
        user, PODS, namespace=namespace, existing=(each.namespace for each in known)
    )
    mine = (each for each in known if each.namespace in seen and each.cursor > after)
    first = heapq.nsmallest(limit + 1, mine, key=lambda each: each.cursor)
    shown = tuple(holder_view(each, parts.model.ledger) for each in first[:limit])
    return Holders(shown, first[limit - 1].cursor if len(first) > limit else "")
