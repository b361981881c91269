# SPDX-License-Identifier: Apache-2.0
"""A reverse proxy in front of the API server that loses, delays or falsifies replies.

It serves with the API server's own certificate. Two environment variables lead a component through
it, and the component trusts it like the server itself. The proxy records what was really written.
"""

import asyncio
import contextlib
import dataclasses
import enum
import re
import ssl
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator

import aiohttp
import yarl
from aiohttp import web

from gpupack_devcluster.settings import ClusterSettings

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "date"}


class Loss(enum.Enum):
    """What happens to a call."""

    OF_THE_REPLY = enum.auto()
    """The call is served; the connection is cut instead of the answer."""
    OF_THE_CALL = enum.auto()
    """The connection is cut before the call is passed on."""
    UNAVAILABLE_AFTERWARDS = enum.auto()
    """The call is served; the answer is a 503."""
    LATE_REPLY = enum.auto()
    """The call is served at once; the answer comes late."""
    LATE_CALL = enum.auto()
    """The call is passed on late."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that hits the first calls to each path.

    Attributes:
        method: of the calls.
        path: what a call's path must match, from its beginning to its end.
        loss: what happens to them.
        times: how many of the calls to one path are hit.
        seconds: how late a late call or reply comes.
    """

    method: str
    path: str
    loss: Loss
    times: int = 1
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Call:
    """A call that was passed on and served.

    Attributes:
        status: the API server's answer, even if the caller received another.
    """

    method: str
    path: str
    status: int
    body: bytes


class ApiProxy:
    """The proxy that `running_proxy` runs."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.host = settings.addresses.host
        self.port = 0
        self.faults: tuple[Fault, ...] = ()
        self.struck: list[str] = []
        """`METHOD path` of each call that a fault hit."""
        self.served: list[Call] = []
        """Writes that reached the API server."""
        self._settings = settings
        self._hits: dict[tuple[Fault, str], int] = {}

    def begin(self, *faults: Fault) -> None:
        """Clear the records, and apply these faults from now on."""
        self.faults, self._hits = faults, {}
        self.struck.clear()
        self.served.clear()

    def written(self, method: str, path: str) -> list[Call]:
        """Return the calls that changed something."""
        return [
            call
            for call in self.served
            if call.method == method and re.fullmatch(path, call.path) and call.status < 300
        ]

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve until the block ends."""
        pki = self._settings.paths.pki
        trusting = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusting, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        ) as session:
            server = web.Server(lambda call: self._handle(call, session))
            runner = web.ServerRunner(server, shutdown_timeout=0.5)
            await runner.setup()
            await web.TCPSite(runner, self.host, 0, ssl_context=serving).start()
            self.port = runner.addresses[0][1]
            yield
            await runner.cleanup()

    async def _handle(
        self, call: web.BaseRequest, session: aiohttp.ClientSession
    ) -> web.StreamResponse:
        body = await call.read()
        fault = self._fault(call)
        loss = fault.loss if fault else None
        if loss is Loss.OF_THE_CALL:
            return _cut(call)
        if fault and loss is Loss.LATE_CALL:
            await asyncio.sleep(fault.seconds)
        async with self._passed_on(call, body, session) as answer:
            if call.method != "GET":
                self.served.append(Call(call.method, call.path, answer.status, body))
            if fault and loss is Loss.LATE_REPLY:
                await asyncio.sleep(fault.seconds)
            if loss is Loss.OF_THE_REPLY:
                return _cut(call)
            if loss is Loss.UNAVAILABLE_AFTERWARDS:
                return web.Response(status=503, text="no leader")
            return await _copied(call, answer)

    def _fault(self, call: web.BaseRequest) -> Fault | None:
        for fault in self.faults:
            if fault.method != call.method or not re.fullmatch(fault.path, call.path):
                continue
            hits = self._hits.get((fault, call.path), 0)
            if hits < fault.times:
                self._hits[fault, call.path] = hits + 1
                self.struck.append(f"{call.method} {call.path}")
                return fault
        return None

    def _passed_on(self, call, body, session):
        headers = {k: v for k, v in call.headers.items() if k.lower() not in HOP_BY_HOP}
        url = yarl.URL(f"{self._settings.api_server}{call.raw_path}", encoded=True)
        return session.request(call.method, url, headers=headers, data=body or None)


@contextlib.contextmanager
def running_proxy(settings: ClusterSettings) -> Iterator[ApiProxy]:
    """Run a proxy in a thread of its own, since tests are not asynchronous."""
    proxy, portal = ApiProxy(settings), asyncio.new_event_loop()
    thread = threading.Thread(target=portal.run_forever)
    thread.start()
    serving = proxy.serving()

    def run(work: Coroutine) -> None:
        asyncio.run_coroutine_threadsafe(work, portal).result(20)

    try:
        run(serving.__aenter__())
        try:
            yield proxy
        finally:
            run(serving.__aexit__(None, None, None))
    finally:
        portal.call_soon_threadsafe(portal.stop)
        thread.join()
        portal.close()


async def _copied(call: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Pass an answer on in pieces, because a watch never ends."""
    headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
    reply = web.StreamResponse(status=answer.status, headers=headers)
    await reply.prepare(call)
    try:
        async for chunk in answer.content.iter_any():
            await reply.write(chunk)
        await reply.write_eof()
    except ConnectionError:
        pass
    except aiohttp.ClientError:
        return _cut(call)
    return reply


def _cut(call: web.BaseRequest) -> web.Response:
    assert call.transport is not None
    call.transport.abort()
    return web.Response()
