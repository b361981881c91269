# SPDX-License-Identifier: Apache-2.0
"""Changes as a stream of server-sent events."""

from typing import Annotated, Final, Literal

import msgspec
from litestar import get
from litestar.datastructures import State
from litestar.openapi import ResponseSpec
from litestar.params import QueryParameter
from litestar.types import ASGIApp

from gpupack_apiserver import problems
from gpupack_apiserver.events.stream import Events, EventStream
from gpupack_apiserver.events.visibility import Visibility
from gpupack_apiserver.rights import who_counts
from gpupack_apiserver.routes.jobs import Namespace
from gpupack_apiserver.routes.parts import PREFIX, Call, caller_of, parts_of

EVENT_STREAM: Final = "text/event-stream"
MAX_SECONDS: Final = 7 * 24 * 3600

NOT_COMPRESSED: Final = "compresses_itself"
"""Option of a call whose answer the application does not compress."""

Full = Annotated[
    bool, QueryParameter(description="Begin with all there is; else what changes from now on.")
]
Seconds = Annotated[
    int,
    QueryParameter(description="End after so many; 0: never.", ge=0, le=MAX_SECONDS),
]


class Event(msgspec.Struct, frozen=True):
    """One event; `data` is JSON."""

    event: Literal["cluster", "nodes", "jobs", "bye"]
    data: str


TOLD: Final = {
    200: ResponseSpec(
        Event,
        generate_examples=False,
        description="Server-sent events, each of this kind.",
        media_type=EVENT_STREAM,
    )
}


@get(
    f"{PREFIX}/events",
    tags=["cluster"],
    responses=TOLD | problems.REFUSALS,
    opt={NOT_COMPRESSED: True},
)
async def events(
    request: Call,
    state: State,
    namespace: Namespace = "",
    full: Full = False,  # noqa: FBT002 - a parameter of the query
    seconds: Seconds = 0,
) -> ASGIApp:
    """Tell what changes, at most once a second, as server-sent events.

    `cluster`: figures as `GET status` has them. `nodes`: `{"changed": [...], "removed": [NAME]}`.
    `jobs`: `{"changed": [...], "removed": [{"namespace", "name"}]}`, of the namespaces whose
    GPUJobs the caller may list. `bye`: why the stream ends. Nodes and figures of the cluster are
    told to whoever may see it as a whole.
    """
    parts = parts_of(state)
    user, caller = await parts.user(request), caller_of(request)
    place = parts.streams.take(who=who_counts(user), peer=caller.address)
    seen = Visibility(parts.rights, caller, user, asked=namespace)
    try:
        await seen.begin({key[0] for key in parts.model.jobs.by_key})
    except Exception:
        place.free()
        raise
    told = Events(parts.feed, parts.frames, seen, parts.model.missing, full=full, seconds=seconds)
    gzip = "gzip" in request.headers.get("accept-encoding", "")
    return EventStream(told, place, gzip=gzip)
