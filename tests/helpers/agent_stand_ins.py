# SPDX-License-Identifier: Apache-2.0
"""Agents as far as the API asks them: HTTPS servers on loopback that answer what a test says."""

import contextlib
import ssl

import aiohttp
import pytest
from aiohttp import web
from self_signed import self_signed

from gpupack_apiserver.readings import agent_poller
from gpupack_apiserver.readings.agent_poller import AgentPoller
from gpupack_apiserver.settings import ReadingSettings

LINE = 'DCGM_FI_DEV_{}{{gpu="0",UUID="{}",modelName="H100"}} {}\n'


def exported(of, *, temperature=61.4, power=402.6, busy=97.0):
    figures = {"GPU_TEMP": temperature, "POWER_USAGE": power, "GPU_UTIL": busy}
    return "".join(LINE.format(name, of, value) for name, value in figures.items())


def answering(text):
    async def handler(request):
        assert request.headers["Authorization"] == "Bearer scraper-token"
        return web.Response(text=text)

    return handler


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Agents:
    def __init__(self):
        self.at = {}

    def addresses(self):
        return self.at


@pytest.fixture
def agents():
    return Agents()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def serve(tmp_path):
    """Starts an agent that answers by this handler; returns its port."""
    certificate, key = self_signed(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    async with contextlib.AsyncExitStack() as stack:

        async def start(handler):
            app = web.Application()
            app.router.add_get("/metrics", handler)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            return runner.addresses[0][1]

        yield start


@pytest.fixture
def round_of(agents, clock, tmp_path):
    """Scrape the agents at this port once; return the readings."""
    (tmp_path / "token").write_text("scraper-token\n")
    made = {}

    async def ask(port, *, nodes=("a", "b"), host="localhost"):
        settings = ReadingSettings(
            ca=str(tmp_path / "tls.crt"),
            token=tmp_path / "token",
            host=host,
            port=port,
            seconds=30.0,
        )
        poller = made.setdefault("poller", AgentPoller(agents, lambda: nodes, settings, now=clock))
        poller._settings = settings
        context = ssl.create_default_context(cafile=settings.ca)
        connector = aiohttp.TCPConnector(ssl=context)
        timeout = aiohttp.ClientTimeout(total=agent_poller.ANSWER_SECONDS)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as session:
            await poller.poll(session)
        return poller

    return ask
