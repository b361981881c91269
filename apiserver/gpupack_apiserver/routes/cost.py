# SPDX-License-Identifier: Apache-2.0
"""Usage and cost of GPUs, in the namespaces that the caller may see."""

import dataclasses
import datetime as dt
import enum
import time
from typing import Annotated, Any, Final, Protocol

import msgspec
from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.enums import MediaType
from litestar.openapi import ResponseSpec
from litestar.openapi.spec import (
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Schema,
)
from litestar.params import QueryParameter

from gpupack_apiserver import problems
from gpupack_apiserver.errors import CallInvalid
from gpupack_apiserver.patterns import COST_CURSOR, require_cursor
from gpupack_apiserver.routes.jobs import Namespace
from gpupack_cost import Group
from gpupack_httpserver.peer_limits import TokenBuckets
from gpupack_restapi import PREFIX
from gpupack_restapi.cost import Costs

MAX_LISTED: Final = 20_000
"""Maximum rows of an answer: 6 MB, also for a caller that reads slowly."""

CSV: Final = "text/csv"

BURST: Final = 10
SECONDS_PER_QUERY: Final = 1.0
"""Ten queries of a user at once, then one a second: an answer takes up to a tenth of a second."""

Call = Request[Any, Any, State]


class Format(enum.StrEnum):
    """The format of the answer."""

    JSON = "json"
    CSV = "csv"


class CostQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A cost query."""

    since: dt.datetime | None
    until: dt.datetime | None
    group_by: Group
    namespace: str
    format: Format
    limit: int
    after: str


def query_limits() -> TokenBuckets:
    """Return the limit of each user's queries, for the cost service and for each forwarder."""
    return TokenBuckets(burst=BURST, seconds=SECONDS_PER_QUERY, clock=time.monotonic)


class CostBackend(Protocol):
    """A source of answers: the cost service itself, or a forwarder."""

    async def answer(self, call: Call, query: CostQuery) -> Response[bytes]:
        """Return the answer; raises Denied, NotReady, CallInvalid, Missing, KubeError."""


@dataclasses.dataclass
class CsvOperation(Operation):
    """An operation whose answer is described as JSON and may be CSV."""

    def __post_init__(self) -> None:
        """Add CSV to the description of the answer."""
        answer = (self.responses or {}).get("200")
        if isinstance(answer, OpenAPIResponse) and answer.content is not None:
            text = Schema(type=OpenAPIType.STRING)
            answer.content[CSV] = OpenAPIMediaType(schema=text)


# Not dt.datetime: in a query Litestar also accepts a number as seconds since 1970.
Since = Annotated[
    str | None,
    QueryParameter(
        format="date-time",
        description="Start, rounded to the hour (UTC without a zone); default: 30 days ago.",
    ),
]
Until = Annotated[
    str | None,
    QueryParameter(format="date-time", description="End, rounded up to the hour; default: now."),
]
GroupBy = Annotated[Group, QueryParameter(description="Grouping of the rows.")]
AsFormat = Annotated[Format, QueryParameter(description="json, or csv for a spreadsheet.")]
Limit = Annotated[int, QueryParameter(description="Maximum rows.", ge=1, le=MAX_LISTED)]
After = Annotated[
    str,
    QueryParameter(description="`next` of the previous page.", max_length=512),
]


@get(
    f"{PREFIX}/cost",
    tags=["cost"],
    operation_class=CsvOperation,
    responses=problems.REFUSALS
    | problems.MISSING
    | {
        200: ResponseSpec(
            Costs,
            generate_examples=False,
            description="Usage and cost; with format=csv the rows as text/csv.",
            media_type=MediaType.JSON,
        )
    },
)
async def cost(  # noqa: PLR0913 - the call has this many parameters
    request: Call,
    state: State,
    *,
    since: Since = None,
    until: Until = None,
    group_by: GroupBy = Group.NAMESPACE,
    namespace: Namespace = "",
    format: AsFormat = Format.JSON,  # noqa: A002 - it is the parameter's name
    limit: Limit = 5000,
    after: After = "",
) -> Response[bytes]:
    """Return GPU-hours, energy and cost of a period."""
    require_cursor(after, COST_CURSOR)
    backend: CostBackend = state["cost"]
    query = CostQuery(
        since=_parse_time("since", since),
        until=_parse_time("until", until),
        group_by=group_by,
        namespace=namespace,
        format=format,
        limit=limit,
        after=after,
    )
    return await backend.answer(request, query)


def _parse_time(field: str, text: str | None) -> dt.datetime | None:
    """Parse a time in RFC 3339; raises CallInvalid."""
    try:
        return None if text is None else msgspec.convert(text, dt.datetime)
    except msgspec.ValidationError as error:
        raise CallInvalid(field, text, "write a time such as 2026-11-01T08:00:00Z") from error
