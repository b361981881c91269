# SPDX-License-Identifier: Apache-2.0
"""What GPUs were held and what that costs, of the namespaces that the caller may see."""

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

from gpupack_api import problems
from gpupack_api.cost_views import Costs
from gpupack_api.errors import CallWrong
from gpupack_api.routes.jobs import Namespace
from gpupack_api.routes.parts import PREFIX
from gpupack_core.accounting import Group
from gpupack_serving.peer_limits import TokenBuckets

MAX_LISTED: Final = 20_000
"""Rows of one answer: 6 MB at most, also for a caller that reads slowly."""

CSV: Final = "text/csv"

BURST: Final = 10
SECONDS: Final = 1.0
"""A user may ask ten times at once, then once a second: an answer takes up to a tenth of one."""

Call = Request[Any, Any, State]


class Format(enum.StrEnum):
    """How the answer is written."""

    JSON = "json"
    CSV = "csv"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to know."""

    since: dt.datetime | None
    until: dt.datetime | None
    group_by: Group
    namespace: str
    format: Format
    limit: int
    after: str


def questions() -> TokenBuckets:
    """How many each user may ask, of the accountant and of each who hands questions on to it."""
    return TokenBuckets(burst=BURST, seconds=SECONDS, clock=time.monotonic)


class CostDesk(Protocol):
    """Who answers: the accountant itself, or whoever knows where it is."""

    async def answer(self, call: Call, asked: Asked) -> Response[bytes]:
        """The answer as it is sent; raises Denied, NotReady, CallWrong, Missing, KubeError."""


@dataclasses.dataclass
class CsvToo(Operation):
    """A call whose answer is described as JSON and may be CSV."""

    def __post_init__(self) -> None:
        """Add that to what is known of the answer."""
        answer = (self.responses or {}).get("200")
        if isinstance(answer, OpenAPIResponse) and answer.content is not None:
            text = Schema(type=OpenAPIType.STRING)
            answer.content[CSV] = OpenAPIMediaType(schema=text)


# Not dt.datetime: in a query Litestar takes a number for seconds since 1970, too.
Since = Annotated[
    str | None,
    QueryParameter(
        format="date-time",
        description="From this hour on (UTC where no zone is named); 30 days ago.",
    ),
]
Until = Annotated[
    str | None,
    QueryParameter(format="date-time", description="Up to the end of this hour; now."),
]
GroupBy = Annotated[Group, QueryParameter(description="What makes a row.")]
AsFormat = Annotated[Format, QueryParameter(description="json, or csv for a spreadsheet.")]
Limit = Annotated[int, QueryParameter(description="At most so many.", ge=1, le=MAX_LISTED)]
After = Annotated[
    str,
    QueryParameter(description="Those after this one: next of the answer before.", max_length=512),
]


@get(
    f"{PREFIX}/cost",
    tags=["cost"],
    operation_class=CsvToo,
    responses=problems.REFUSALS
    | problems.MISSING
    | {
        200: ResponseSpec(
            Costs,
            generate_examples=False,
            description="What was held; with format=csv the rows as text/csv.",
            media_type=MediaType.JSON,
        )
    },
)
async def cost(  # noqa: PLR0913 - the call has so many parameters
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
    """Tell GPU-hours, energy and cost of a period."""
    desk: CostDesk = state["cost"]
    asked = Asked(
        since=_moment("since", since),
        until=_moment("until", until),
        group_by=group_by,
        namespace=namespace,
        format=format,
        limit=limit,
        after=after,
    )
    return await desk.answer(request, asked)


def _moment(field: str, text: str | None) -> dt.datetime | None:
    """A moment as RFC 3339 writes it; raises CallWrong."""
    try:
        return None if text is None else msgspec.convert(text, dt.datetime)
    except msgspec.ValidationError as error:
        raise CallWrong(field, text, "write a moment as 2026-11-01T08:00:00Z") from error
