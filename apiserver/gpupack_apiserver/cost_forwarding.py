# SPDX-License-Identifier: Apache-2.0
"""Forwarding of questions about cost to the cost service, which authorizes the caller's token.

A caller with a client certificate has no token to pass on: this service names its user.
"""

from pathlib import Path
from typing import Final

import aiohttp
from litestar import Response

from gpupack_apiserver import named_caller
from gpupack_apiserver.errors import Missing
from gpupack_apiserver.rights import require_left
from gpupack_apiserver.routes.cost import Asked, Call, questions
from gpupack_apiserver.routes.parts import PREFIX, Parts, authorization_of
from gpupack_apiserver.settings import Accountant
from gpupack_httpserver.user import User
from gpupack_kubeclient.ca_file import CaFile
from gpupack_scheduler.errors import NotReady

SECONDS: Final = 20.0
_HANDED_ON: Final = ("Content-Disposition", "Link", "Retry-After", "WWW-Authenticate")


class ForwardingDesk:
    """The forwarding implementation of CostDesk.

    Each question opens a connection: questions are few, as their rate is limited, and each takes
    longer than a handshake.

    Args:
        parts: authentication of callers.
        accountant: the cost service; None: there is none.
    """

    def __init__(self, parts: Parts, accountant: Accountant | None) -> None:
        self._parts, self._accountant = parts, accountant
        self._questions = questions()
        self._trusted = None if accountant is None else _trusted(accountant)

    async def answer(self, call: Call, asked: Asked) -> Response[bytes]:
        """Return the cost service's answer; see CostDesk."""
        del asked
        user = await self._parts.user(call)
        if self._accountant is None or self._trusted is None:
            raise Missing("cost is not accounted for here; an administrator can set cost.enabled")
        headers = await self._headers(call, user)
        require_left(self._questions, user)
        url = f"{self._accountant.url}{PREFIX}/cost?{call.scope['query_string'].decode('latin-1')}"
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as session,
                session.get(url, headers=headers, ssl=self._trusted.context()) as found,
            ):
                body = await found.read()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise NotReady(f"the accountant of costs does not answer: {error}") from error
        return Response(
            body,
            status_code=found.status,
            media_type=found.content_type,
            headers={name: found.headers[name] for name in _HANDED_ON if name in found.headers},
        )

    async def _headers(self, call: Call, user: User) -> dict[str, str]:
        if token := authorization_of(call):
            return {"Authorization": token}
        own = (await self._parts.api.identity()).presented.authorization
        return {"Authorization": own, named_caller.HEADER: named_caller.written(user)}


def _trusted(accountant: Accountant) -> CaFile:
    return CaFile(Path(accountant.ca) if accountant.ca else None)
