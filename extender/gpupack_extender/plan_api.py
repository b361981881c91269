# SPDX-License-Identifier: Apache-2.0
"""HTTPS server: the plan API and notifications for the operator, metrics, and the known state.

Every call requires a token and the right, and no body is read before both are checked: any pod can
have a token of this audience. Each user with the right has one body in memory at a time, and one
body is decoded at a time.
"""

import asyncio
import dataclasses
import http
import re
import weakref
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gpupack_crds import names
from gpupack_crds.plan import PlanRefusal, PlanRequest
from gpupack_extender import endpoints
from gpupack_extender.errors import CallInvalid, CallTooLarge
from gpupack_extender.metrics import Metrics
from gpupack_extender.readiness import Readiness
from gpupack_httpserver.access import Access, Caller
from gpupack_httpserver.user import User
from gpupack_placement import dump, dump_forecast
from gpupack_scheduler.planning import Plan
from gpupack_scheduler.queueing.turns import Turns

SNAPSHOT_PATH: Final = "/snapshot"
DEMAND_FORECAST_PATH: Final = "/demand-forecast"

LIMIT_BYTES: Final = 2 << 20
"""More than the largest GPUJob that etcd accepts."""

MAX_VALUES: Final = 1 << 18
"""Limit for one body. Decoded, each value takes up to 100 bytes: 2 MiB of empty lists would be
700,000. Values are counted by their separators, of which a body of 256 KiB cannot have more.
"""

TURN_SECONDS: Final = 20.0
"""How long a call for notifications waits for one."""

_NUMBER: Final = re.compile("[0-9]{1,18}")
_NAMESPACE: Final = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanApi:
    """Endpoints for plans, notifications, metrics, snapshot and forecast."""

    make_plan: Plan
    turns: Turns
    access: Access
    readiness: Readiness
    metrics: Metrics
    _turns: weakref.WeakValueDictionary[str, asyncio.Lock] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary, init=False
    )
    """Locks by user that requests plans."""
    _decoding: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock, init=False)

    def app(self) -> Starlette:
        """Return the routes."""
        return endpoints.application(
            [
                Route(names.PLAN_ROUTE, endpoints.guarded(self.plan), methods=["POST"]),
                Route(names.TURNS_ROUTE, endpoints.guarded(self.show_turns)),
                Route("/metrics", endpoints.guarded(self.show_metrics)),
                Route(SNAPSHOT_PATH, endpoints.guarded(self.show_snapshot)),
                Route(DEMAND_FORECAST_PATH, endpoints.guarded(self.show_demand_forecast)),
            ]
        )

    async def plan(self, request: Request) -> Response:
        """Answer with places for all workers of an attempt, or with the reason for a refusal."""
        namespace = _namespace(request)
        user = await self.access.may_plan(_caller(request), namespace=namespace)
        call = await self._read(request, user)
        if call.namespace != namespace:
            raise CallInvalid(f"namespace is {call.namespace!r}, and the path's {namespace!r}")
        self.readiness.require_to_decide()
        with self.metrics.timed("plan"):
            result = self.make_plan(call)
        if isinstance(result, PlanRefusal):
            self.metrics.count("plan", "refused")
            return endpoints.answer(result, http.HTTPStatus.CONFLICT)
        self.metrics.count("plan", "placed")
        return endpoints.answer(result)

    async def show_turns(self, request: Request) -> Response:
        """Answer with the jobs that can be admitted since the caller's last call.

        The call waits until there is one.
        """
        await self.access.may_hear_turns(_caller(request))
        self.readiness.require_to_decide()
        queue, number = (
            request.query_params.get("queue", ""),
            request.query_params.get("number", ""),
        )
        if not _NUMBER.fullmatch(number):
            raise CallInvalid(f"number is {number[:63]!r}; say the number of the last turn, or 0")
        return endpoints.answer(await self.turns.since(queue, int(number), seconds=TURN_SECONDS))

    async def show_metrics(self, request: Request) -> Response:
        """Answer with all metrics, in Prometheus' format."""
        await self._require_right(request)
        return PlainTextResponse(self.metrics.text())

    async def show_snapshot(self, request: Request) -> Response:
        """Answer with nodes, devices and holders, for the simulator; a thread writes a copy.

        Nothing is shown while a watch is stale: readers would take it for the cluster.
        """
        await self._require_right(request)
        self.readiness.require_to_answer()
        copy = self.make_plan.ledger.cluster.fork()
        return endpoints.answer(await asyncio.to_thread(dump, copy))

    async def show_demand_forecast(self, request: Request) -> Response:
        """Answer with the forecast from past pods, for the simulator and the chart."""
        await self._require_right(request)
        return endpoints.answer(dump_forecast(self.make_plan.ledger.learner.peek()))

    async def _read(self, request: Request, user: User) -> PlanRequest:
        async with self._turns.setdefault(user.username, asyncio.Lock()):
            body = await endpoints.read_body(request, LIMIT_BYTES)
            _require_few_values(body.whole)
            async with self._decoding:
                return await endpoints.decoded(body, PlanRequest)

    async def _require_right(self, request: Request) -> None:
        await self.access.may_get(_caller(request), path=request.url.path)


def _namespace(request: Request) -> str:
    namespace: str = request.path_params["namespace"]
    if not _NAMESPACE.fullmatch(namespace):
        raise CallInvalid(f"the path's {namespace[:63]!r} is no name of a namespace")
    return namespace


def _require_few_values(body: bytes) -> None:
    values = sum(body.count(each) for each in (b",", b"[", b"{"))
    if values > MAX_VALUES:
        raise CallTooLarge(f"the body has about {values} values; at most {MAX_VALUES} are read")


def _caller(request: Request) -> Caller:
    return Caller(
        authorization=request.headers.get("authorization", ""),
        address=request.client.host if request.client else "",
    )
