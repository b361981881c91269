# SPDX-License-Identifier: Apache-2.0
"""Health and readiness for the kubelet, on a separate port.

Probes are answered under any load on the plan API's port. They need no authentication and show only
what is missing.
"""

import dataclasses
import http

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gpupack_extender import endpoints
from gpupack_extender.readiness import Readiness


@dataclasses.dataclass(frozen=True, slots=True)
class Health:
    """Endpoints healthz and readyz."""

    readiness: Readiness

    def app(self) -> Starlette:
        """Return the routes."""
        return endpoints.application(
            [Route("/healthz", self.healthz), Route("/readyz", self.readyz)]
        )

    async def healthz(self, _: Request) -> Response:
        """Answer, to show that the process responds."""
        return PlainTextResponse("ok")

    async def readyz(self, _: Request) -> Response:
        """Answer whether this process leads, or could at once: all objects are known and fresh."""
        missing = self.readiness.missing_to_answer()
        code = http.HTTPStatus.SERVICE_UNAVAILABLE if missing else http.HTTPStatus.OK
        return PlainTextResponse(missing or "ok", code)
