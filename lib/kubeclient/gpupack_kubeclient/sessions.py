# SPDX-License-Identifier: Apache-2.0
"""Connections to one API server.

aiohttp keeps connections by TLS context. A renewed client certificate or CA gets another context,
so that the next request opens a new connection, and requests in progress continue.
"""

import ssl
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from multidict import CIMultiDict, CIMultiDictProxy

from gpupack_kubeclient.ca_file import CaFile
from gpupack_kubeclient.kubeconfig import tls
from gpupack_kubeclient.kubeconfig.presented import Presented
from gpupack_kubeclient.kubeconfig.target import Target

CONNECTIONS: Final = 64

LINE_BYTES: Final = 2 << 20
"""Bytes read ahead of one answer; events of a watch are larger than aiohttp's default."""


class Connector(aiohttp.TCPConnector):
    """A connector that never shows a proxy's password.

    aiohttp's error for a proxy that refuses holds the whole address, and libraries print errors.
    """

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
    ) -> Connection:
        """Connect; the error of a proxy that refuses names only its answer and its host."""
        refused: aiohttp.ClientHttpProxyError | None = None
        try:
            return await super().connect(req, traces, timeout)
        except aiohttp.ClientHttpProxyError as error:
            refused = error
        # Not within `except`: the error with the address would be its context.
        request = refused.request_info
        masked = request._replace(
            url=request.url.with_user(None),
            real_url=request.real_url.with_user(None),
            headers=CIMultiDictProxy(CIMultiDict()),
        )
        raise aiohttp.ClientHttpProxyError(
            masked, refused.history, status=refused.status, message=refused.message
        )


def session(
    target: Target, connector: aiohttp.TCPConnector, **options: Any
) -> aiohttp.ClientSession:
    """Make a session that uses the target's proxy.

    aiohttp reads neither variables nor `.netrc`: both would change what a kubeconfig means.
    """
    return aiohttp.ClientSession(
        connector=connector,
        proxy=target.proxy or None,
        trust_env=False,
        read_bufsize=LINE_BYTES,
        **options,
    )


class Contexts:
    """The TLS context for the current credentials.

    Args:
        target: the API server.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._shown: Presented | None = None
        self._made: CaFile | ssl.SSLContext | None = None

    def of(self, presented: Presented) -> ssl.SSLContext | bool:
        """Return the context.

        Raises:
            OSError: the CAs cannot be read, or are not valid.
            NoCredentials: the client certificate is not valid.
        """
        if not self._target.server.startswith("https://"):
            return True
        shown = self._shown
        if shown is None or shown.certificate != presented.certificate:
            self._made = self._new(presented)
            self._shown = presented
        made = self._made
        assert made is not None  # noqa: S101 - made above
        return made.context() if isinstance(made, CaFile) else made

    def _new(self, presented: Presented) -> CaFile | ssl.SSLContext:
        target = self._target

        def context(authority: bytes) -> ssl.SSLContext:
            return tls.context(
                authority=authority,
                insecure=target.insecure,
                server_name=target.server_name,
                presented=presented,
            )

        if isinstance(target.authority, Path):
            return CaFile(target.authority, make=context)
        return context(target.authority)
