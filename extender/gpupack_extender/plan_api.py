# SPDX-License-Identifier: Apache-2.0
"""The HTTPS side: the plan API for the operator, metrics, and what is known.

Everything asks for a token and the right.
"""

import asyncio
import dataclasses
import http

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import gpupack_core as core
from gpupack_crds import names
from gpupack_crds.plan import PlanRefusal, PlanRequest
from gpupack_extender import endpoints
from gpupack_extender.access import Access, Caller
from gpupack_extender.metrics import Metrics
from gpupack_extender.planning import Plan
from gpupack_extender.readiness import Readiness

SNAPSHOT_PATH = "/snapshot"
OUTLOOK_PATH = "/outlook"

LIMIT_BYTES = 2 << 20
"""More than the largest GPUJob that etcd takes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanApi:
    """plan, metrics, snapshot, outlook."""

    make_plan: Plan
    access: Access
    readiness: Readiness
    metrics: Metrics

    def app(self) -> Starlette:
        """The routes."""
        return endpoints.application(
            [
                Route(names.PLAN_PATH, endpoints.guarded(self.plan), methods=["POST"]),
                Route("/metrics", endpoints.guarded(self.show_metrics)),
                Route(SNAPSHOT_PATH, endpoints.guarded(self.show_snapshot)),
                Route(OUTLOOK_PATH, endpoints.guarded(self.show_outlook)),
            ]
        )

    async def plan(self, request: Request) -> Response:
        """Places for all workers of an attempt, or why not."""
        caller = _caller(request)
        await self.access.known(caller, audience=names.PLAN_AUDIENCE)
        call = await endpoints.read(request, PlanRequest, limit_bytes=LIMIT_BYTES)
        await self.access.may_plan(caller, namespace=call.namespace)
        self.readiness.require_to_decide()
        with self.metrics.timed("plan"):
            result = self.make_plan(call)
        if isinstance(result, PlanRefusal):
            self.metrics.count("plan", "refused")
            return endpoints.answer(result, http.HTTPStatus.CONFLICT)
        self.metrics.count("plan", "placed")
        return endpoints.answer(result)

    async def show_metrics(self, request: Request) -> Response:
        """Everything that is counted, in Prometheus' format."""
        await self._require_right(request)
        return PlainTextResponse(self.metrics.text())

    async def show_snapshot(self, request: Request) -> Response:
        """Nodes, devices and who holds what, for the simulator; written in a thread, from a copy.

        Nothing is shown while a watch is stale: it would be taken for the cluster.
        """
        await self._require_right(request)
        self.readiness.require_to_answer()
        copy = self.make_plan.ledger.cluster.fork()
        return endpoints.answer(await asyncio.to_thread(core.dump, copy))

    async def show_outlook(self, request: Request) -> Response:
        """What the pods so far say of those to come, for the simulator and the chart."""
        await self._require_right(request)
        return endpoints.answer(core.dump_outlook(self.make_plan.ledger.learner.peek()))

    async def _require_right(self, request: Request) -> None:
        await self.access.may_get(_caller(request), path=request.url.path)


def _caller(request: Request) -> Caller:
    return Caller(
        authorization=request.headers.get("authorization", ""),
        address=request.client.host if request.client else "",
    )
