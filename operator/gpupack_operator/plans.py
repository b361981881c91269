# SPDX-License-Identifier: Apache-2.0
"""The plan API's client.

Connections are kept open, because a TLS handshake costs more than a plan. After any trouble they
are dropped: a kept connection leads to the same pod behind the Service for ever, even when that
is no longer the leader. Nothing is retried here; the job waits and says why.
"""

import asyncio
import ssl

import aiohttp
import msgspec

from gpupack_crds import names
from gpupack_crds.plan import PlanRefusal, PlanRequest, PlanResponse, Problem
from gpupack_operator.errors import PlanUnanswered
from gpupack_operator.settings import PlanSettings

CALL_SECONDS = 10.0
OK, CONFLICT, DENIED = 200, 409, {400, 401, 403}


class PlanClient:
    """Asks for places. Plans are asked for one at a time, in the order of the calls."""

    def __init__(self, settings: PlanSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._turn = asyncio.Lock()

    async def ask(self, request: PlanRequest) -> PlanResponse | PlanRefusal:
        """Ask for places for all workers of an attempt.

        Raises:
            PlanUnanswered: there is neither a plan nor a refusal.
        """
        async with self._turn:
            try:
                return await self._post(request)
            except PlanUnanswered:
                await self.aclose()
                raise

    async def aclose(self) -> None:
        """Drop all connections."""
        if self._session:
            await self._session.close()
        self._session = None

    async def _post(self, request: PlanRequest) -> PlanResponse | PlanRefusal:
        url = f"{self._settings.url}{names.PLAN_PATH}"
        body = msgspec.json.encode(request)
        try:
            session = self._connected()
            async with session.post(url, data=body, headers=self._headers()) as response:
                return _answer(response.status, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PlanUnanswered(f"the plan API does not answer: {_said(error)}") from error

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
            connector = aiohttp.TCPConnector(ssl=self._tls())
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self._session

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._settings.ca)

    def _headers(self) -> dict[str, str]:
        token = self._settings.token.read_text().strip()
        return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


def _answer(status: int, body: bytes) -> PlanResponse | PlanRefusal:
    try:
        if status == OK:
            return msgspec.json.decode(body, type=PlanResponse)
        if status == CONFLICT:
            return msgspec.json.decode(body, type=PlanRefusal)
    except msgspec.MsgspecError as error:
        raise PlanUnanswered(f"the plan API's answer cannot be read: {error}") from error
    raise PlanUnanswered(f"the plan API says {status}: {_problem(body)}", denied=status in DENIED)


def _problem(body: bytes) -> str:
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        return body[:200].decode(errors="replace")
    return f"{problem.reason}: {problem.message}"


def _said(error: Exception) -> str:
    """The cause without addresses and ports that differ from call to call."""
    return type(error).__name__
