# SPDX-License-Identifier: Apache-2.0
"""The HTTPS side: the plan API for the operator; health, readiness and metrics.

Health and readiness are for anyone and say what is missing, no more. Everything else asks for a
token and the right.
"""

import dataclasses
import http

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gpupack_crds import names
from gpupack_crds.plan import PlanRefusal, PlanRequest
from gpupack_extender import endpoints
from gpupack_extender.access import Access
from gpupack_extender.metrics import Metrics
from gpupack_extender.planning import Plan
from gpupack_extender.readiness import Readiness

LIMIT_BYTES = 2 << 20
"""More than the largest GPUJob that etcd takes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanApi:
    """plan, healthz, readyz, metrics."""

    make_plan: Plan
    access: Access
    readiness: Readiness
    metrics: Metrics

    def app(self) -> Starlette:
        """The routes."""
        return endpoints.application(
            [
                Route(names.PLAN_PATH, endpoints.guarded(self.plan), methods=["POST"]),
                Route("/healthz", self.healthz),
                Route("/readyz", self.readyz),
                Route("/metrics", endpoints.guarded(self.show_metrics)),
            ]
        )

    async def plan(self, request: Request) -> Response:
        """Places for all workers of an attempt, or why not."""
        authorization = request.headers.get("authorization", "")
        await self.access.known(authorization, audience=names.PLAN_AUDIENCE)
        call = await endpoints.read(request, PlanRequest, limit_bytes=LIMIT_BYTES)
        await self.access.may_plan(authorization, namespace=call.namespace)
        self.readiness.require_to_decide()
        with self.metrics.timed("plan"):
            result = self.make_plan(call)
        if isinstance(result, PlanRefusal):
            self.metrics.count("plan", "refused")
            return endpoints.answer(result, http.HTTPStatus.CONFLICT)
        self.metrics.count("plan", "placed")
        return endpoints.answer(result)

    async def healthz(self, _: Request) -> Response:
        """Whether the process answers."""
        return PlainTextResponse("ok")

    async def readyz(self, _: Request) -> Response:
        """Whether plans can be asked for here."""
        missing = self.readiness.missing_to_decide()
        code = http.HTTPStatus.SERVICE_UNAVAILABLE if missing else http.HTTPStatus.OK
        return PlainTextResponse(missing or "ok", code)

    async def show_metrics(self, request: Request) -> Response:
        """Everything that is counted, in Prometheus' format."""
        await self.access.may_read_metrics(request.headers.get("authorization", ""))
        return PlainTextResponse(self.metrics.text())
