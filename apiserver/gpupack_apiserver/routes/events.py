# SPDX-License-Identifier: Apache-2.0
"""Changes as a stream of server-sent events."""

from typing import Annotated, Final

from litestar import get
from litestar.datastructures import State
from litestar.openapi import ResponseSpec
from litestar.params import QueryParameter
from litestar.types import ASGIApp

from gpupack_apiserver import problems
from gpupack_apiserver.events.stream import Events, EventStream
from gpupack_apiserver.events.visibility import Visibility
from gpupack_apiserver.rights import rate_limit_key
from gpupack_apiserver.routes.jobs import Namespace
from gpupack_apiserver.routes.parts import Call, caller_of, parts_of
from gpupack_restapi import PREFIX
from gpupack_restapi.events import Event

EVENT_STREAM: Final = "text/event-stream"
MAX_SECONDS: Final = 7 * 24 * 3600

NOT_COMPRESSED: Final = "compresses_itself"
"""Option of a call whose answer the application does not compress."""

Full = Annotated[
    bool, QueryParameter(description="Start with the complete state; else only later changes.")
]
Seconds = Annotated[
    int,
    QueryParameter(description="Seconds until the stream ends; 0: never.", ge=0, le=MAX_SECONDS),
]


EVENTS_RESPONSE: Final = {
    200: ResponseSpec(
        Event,
        generate_examples=False,
        description="Server-sent events of this schema.",
        media_type=EVENT_STREAM,
    )
}


@get(
    f"{PREFIX}/events",
    tags=["cluster"],
    responses=EVENTS_RESPONSE | problems.REFUSALS,
    opt={NOT_COMPRESSED: True},
)
async def events(
    request: Call,
    state: State,
    namespace: Namespace = "",
    full: Full = False,  # noqa: FBT002 - a parameter of the query
    seconds: Seconds = 0,
) -> ASGIApp:
    """Stream changes, at most once a second, as server-sent events.

    `cluster`: figures as `GET status` has them. `nodes`: `{"changed": [...], "removed": [NAME]}`.
    `jobs`: `{"changed": [...], "removed": [{"namespace", "name"}]}`, of the namespaces whose
    GPUJobs the caller may list. `bye`: why the stream ends. Nodes and figures of the cluster are
    sent to callers that may see the whole cluster.
    """
    parts = parts_of(state)
    user, caller = await parts.authenticate(request), caller_of(request)
    slot = parts.streams.take(user=rate_limit_key(user), address=caller.address)
    visibility = Visibility(parts.rights, caller, user, namespace=namespace)
    try:
        await visibility.check_all({key[0] for key in parts.model.jobs.by_key})
    except Exception:
        slot.release()
        raise
    content = Events(
        parts.feed, parts.frames, visibility, parts.model.missing, full=full, seconds=seconds
    )
    gzip = "gzip" in request.headers.get("accept-encoding", "")
    return EventStream(content, slot, gzip=gzip)
