# SPDX-License-Identifier: Apache-2.0
"""Real sockets and TLS: pods cannot block the port of the plan API for others."""

import asyncio
import contextlib
import ssl
import time

import aiohttp
import pytest
import uvloop
from listening import listening
from self_signed import self_signed
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gpupack_extender import endpoints
from gpupack_extender.health import Health
from gpupack_extender.servers import health_server, plan_server
from gpupack_extender.settings import Serving
from gpupack_httpserver import connections, listener
from gpupack_httpserver.certificate import ServedCertificate
from gpupack_httpserver.handshakes import Handshakes
from gpupack_httpserver.peer_limits import CONNECTIONS_PER_PEER

# Hundreds of handshakes take long on a busy machine.
pytestmark = pytest.mark.timeout(180)

IDLE = 400


class Ready:
    """Nothing is missing."""

    def missing_to_answer(self):
        return ""


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """A certificate of its own."""
    certificate, key = self_signed(tmp_path_factory.mktemp("tls"))
    return Serving(tls_cert=str(certificate), tls_key=str(key))


def certificate(serving):
    return ServedCertificate(serving.files)


def on_both_loops(scenario):
    """asyncio's own loop, and the one that the extender runs on."""
    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(scenario(), timeout=80))


@contextlib.asynccontextmanager
async def served(serving):
    """The plan API's port, with a call that echoes, and that of health."""

    async def echo(call):
        return PlainTextResponse(await call.body())

    app = endpoints.application([Route("/echo", echo, methods=["POST"])])
    async with (
        listening(plan_server(app, serving, certificate(serving))) as plans,
        listening(health_server(Health(Ready()).app(), serving)) as health,
    ):
        yield plans, health


async def ask(plans, health):
    """One call to each."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        echoed = session.post(f"https://127.0.0.1:{plans}/echo", data=b"hi", ssl=False)
        async with echoed as answer:
            assert (answer.status, await answer.text()) == (200, "hi")
        async with session.get(f"http://127.0.0.1:{health}/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")


def unverified():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextlib.asynccontextmanager
async def idle_connections(port, *, tls):
    """Connections that say nothing; with `tls`, they say so after a handshake."""
    context = unverified() if tls else None
    tried = (asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(IDLE))
    ended = await asyncio.gather(*tried, return_exceptions=True)
    opened = [each for each in ended if not isinstance(each, OSError)]
    try:
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.transport.abort()


@pytest.mark.parametrize("tls", [False, True], ids=["before TLS", "after TLS"])
def test_four_hundred_idle_connections_keep_no_call_and_no_probe_waiting(serving, tls):
    async def scenario():
        async with served(serving) as (plans, health), idle_connections(plans, tls=tls):
            await ask(plans, health)

    on_both_loops(scenario)


def test_four_hundred_idle_connections_to_the_probes_port_keep_no_probe_waiting(serving):
    async def scenario():
        async with served(serving) as (plans, health), idle_connections(health, tls=False):
            await ask(plans, health)

    on_both_loops(scenario)


def test_of_one_address_no_more_connections_than_the_bound_stay_open(serving):
    async def scenario():
        async with served(serving) as (plans, _), idle_connections(plans, tls=True) as readers:

            def still_open():
                # One that was reset is not at its end: it has an exception instead.
                return sum(not each.at_eof() and each.exception() is None for each in readers)

            async with asyncio.timeout(30):
                while still_open() > CONNECTIONS_PER_PEER:
                    await asyncio.sleep(0.05)
            assert still_open() > 0

    on_both_loops(scenario)


@pytest.mark.parametrize("tls", [False, True], ids=["before TLS", "after TLS"])
def test_a_connection_that_says_nothing_is_closed(serving, tls, monkeypatch):
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 0.3)
    monkeypatch.setattr(connections, "FIRST_BYTE_SECONDS", 0.3)

    async def scenario():
        context = unverified() if tls else None
        async with served(serving) as (plans, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", plans, ssl=context)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), timeout=30) == b""
            writer.close()

    on_both_loops(scenario)


def test_a_call_under_way_is_not_dropped_for_idle_connections(serving):
    async def scenario():
        async with served(serving) as (plans, health):
            context = unverified()
            reader, writer = await asyncio.open_connection("127.0.0.1", plans, ssl=context)
            writer.write(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
            await asyncio.sleep(0.1)
            async with idle_connections(plans, tls=False):
                await ask(plans, health)
                writer.write(b"hi")
                async with asyncio.timeout(30):
                    assert await reader.readuntil(b"hi")
            writer.close()

    on_both_loops(scenario)


def test_a_connection_that_cannot_be_opened_leaves_its_slot(serving):
    async def scenario():
        server = plan_server(endpoints.application([]), serving, certificate(serving))
        server._protocol = lambda _: 1 // 0
        async with listening(server) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await asyncio.wait_for(reader.read(), timeout=30) == b""
            assert not server._limits.taken
            writer.close()

    on_both_loops(scenario)


def test_of_one_address_no_more_handshakes_are_made_than_the_bound(serving):
    made = []

    async def shake_and_drop(port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=unverified())
        made.append(port)
        writer.transport.abort()

    async def scenario():
        app = endpoints.application([])
        server = plan_server(
            app, serving, certificate(serving), Handshakes(peer_burst=5, peer_per_second=2)
        )
        made.clear()
        async with listening(server) as port:
            start = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2):
                    for _ in range(200):
                        await shake_and_drop(port)
            assert 5 <= len(made) <= 5 + 2 * (time.monotonic() - start)

    on_both_loops(scenario)
