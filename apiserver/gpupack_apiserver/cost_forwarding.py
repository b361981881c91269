# SPDX-License-Identifier: Apache-2.0
"""Forwarding of cost queries to the cost service, which authorizes the caller's token.

A caller with a client certificate has no token to pass on: this service names its user.
"""

from pathlib import Path
from typing import Final

import aiohttp
from litestar import Response

from gpupack_apiserver import caller_header
from gpupack_apiserver.errors import Missing
from gpupack_apiserver.rights import require_within_limit
from gpupack_apiserver.routes.cost import Call, CostQuery, query_limits
from gpupack_apiserver.routes.parts import Parts, authorization_of
from gpupack_apiserver.settings import CostService
from gpupack_httpserver.user import User
from gpupack_kubeclient.ca_file import CaFile
from gpupack_restapi import PREFIX
from gpupack_scheduler.errors import NotReady

TIMEOUT_SECONDS: Final = 20.0
_FORWARDED_HEADERS: Final = ("Content-Disposition", "Link", "Retry-After", "WWW-Authenticate")


class CostForwarder:
    """The forwarding implementation of CostBackend.

    Each query opens a connection: queries are few, as their rate is limited, and each takes longer
    than a handshake.

    Args:
        parts: authentication of callers.
        service: the cost service; None: there is none.
    """

    def __init__(self, parts: Parts, service: CostService | None) -> None:
        self._parts, self._service = parts, service
        self._limits = query_limits()
        self._trusted = None if service is None else _trusted(service)

    async def answer(self, call: Call, query: CostQuery) -> Response[bytes]:
        """Return the cost service's answer; see CostBackend."""
        del query
        user = await self._parts.authenticate(call)
        if self._service is None or self._trusted is None:
            raise Missing("the cost service is off; an administrator can set cost.enabled=true")
        headers = await self._headers(call, user)
        require_within_limit(self._limits, user)
        url = f"{self._service.url}{PREFIX}/cost?{call.scope['query_string'].decode('latin-1')}"
        try:
            async with (
                aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
                ) as session,
                session.get(url, headers=headers, ssl=self._trusted.context()) as found,
            ):
                body = await found.read()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise NotReady(f"cost service unavailable: {error}") from error
        return Response(
            body,
            status_code=found.status,
            media_type=found.content_type,
            headers={
                name: found.headers[name] for name in _FORWARDED_HEADERS if name in found.headers
            },
        )

    async def _headers(self, call: Call, user: User) -> dict[str, str]:
        if token := authorization_of(call):
            return {"Authorization": token}
        own = (await self._parts.api.identity()).presented.authorization
        return {"Authorization": own, caller_header.HEADER: caller_header.encode(user)}


def _trusted(service: CostService) -> CaFile:
    return CaFile(Path(service.ca) if service.ca else None)
