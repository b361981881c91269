# SPDX-License-Identifier: Apache-2.0
"""Connection to the extender: kept open, because a TLS handshake costs more than a plan."""

import ssl
from types import TracebackType
from typing import Self

import aiohttp

from gpupack_kubeclient.ca_file import CaFile
from gpupack_operator.settings import PlanSettings


class ExtenderClient:
    """Client that makes calls over one kept connection.

    Callers close the connection after any error: it always leads to the same pod behind the
    Service, even when that pod is no longer the leader.

    Args:
        settings: the address and the token.
        seconds: time limit of a call.
    """

    def __init__(self, settings: PlanSettings, *, seconds: float) -> None:
        self._settings, self._seconds = settings, seconds
        self._trusted: CaFile | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Drop all connections."""
        if self._session:
            await self._session.close()
        self._session = None

    async def call(
        self,
        method: str,
        route: str,
        *,
        body: bytes | None = None,
        query: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Return the answer's status and body.

        Raises:
            aiohttp.ClientError, TimeoutError, OSError: there is no answer.
        """
        url, headers = f"{self._settings.url}{route}", self._headers()
        session = self._connected()
        async with session.request(
            method, url, data=body, params=query, headers=headers, ssl=self._context()
        ) as response:
            return response.status, await response.read()

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._seconds)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session

    def _context(self) -> ssl.SSLContext:
        """Return the context with the extender's current CA; raise OSError if it cannot be read."""
        if self._trusted is None:
            self._trusted = CaFile(self._settings.ca)
        return self._trusted.context()

    def _headers(self) -> dict[str, str]:
        token = self._settings.token.read_text().strip()
        return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
