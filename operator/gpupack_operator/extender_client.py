# SPDX-License-Identifier: Apache-2.0
"""A connection to the extender: kept open, because a TLS handshake costs more than a plan."""

import ssl
from types import TracebackType
from typing import Self

import aiohttp

from gpupack_kube.ca_file import CaFile
from gpupack_operator.settings import PlanSettings


class ExtenderClient:
    """Makes calls over one kept connection.

    Who uses it drops that after any trouble: it leads to the same pod behind the Service for ever,
    even when that is no longer the leader.

    Args:
        settings: where, and with which token.
        seconds: that a call may take.
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
        """The answer's status and body.

        Raises:
            aiohttp.ClientError, TimeoutError, OSError: there is none.
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
        """By which the extender is known now; raises OSError."""
        if self._trusted is None:
            self._trusted = CaFile(self._settings.ca)
        return self._trusted.context()

    def _headers(self) -> dict[str, str]:
        token = self._settings.token.read_text().strip()
        return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
