# SPDX-License-Identifier: Apache-2.0
"""Health and readiness for the kubelet, on a port of their own.

Whatever is done to the plan API's port, probes are answered. They are for anyone and say what is
missing, no more.
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
    """healthz, readyz."""

    readiness: Readiness

    def app(self) -> Starlette:
        """The routes."""
        return endpoints.application(
            [Route("/healthz", self.healthz), Route("/readyz", self.readyz)]
        )

    async def healthz(self, _: Request) -> Response:
        """Whether the process answers."""
        return PlainTextResponse("ok")

    async def readyz(self, _: Request) -> Response:
        """Whether this leads, or could at once: everything is known and fresh."""
        missing = self.readiness.missing_to_answer()
        code = http.HTTPStatus.SERVICE_UNAVAILABLE if missing else http.HTTPStatus.OK
        return PlainTextResponse(missing or "ok", code)
