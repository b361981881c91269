# SPDX-License-Identifier: Apache-2.0
"""A periodic reader of all agents' metrics.

    concurrently   MAX_CONCURRENT agents
    an answer      ANSWER_SECONDS, MAX_BYTES; no redirect, no compression, no proxy
    valid for      STALE_SECONDS

The agent's certificate is verified, and the token that is sent permits only GET /metrics. An
agent's data counts only for GPUs of its own node.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, Protocol

import aiohttp

from gpupack_apiserver.readings.reading import NOTHING, Reading
from gpupack_apiserver.settings import ReadingSettings
from gpupack_httpserver import scraped
from gpupack_kubeclient.ca_file import CaFile

log = logging.getLogger(__name__)

MAX_CONCURRENT: Final = 16
ANSWER_SECONDS: Final = 5.0
MAX_BYTES: Final = 4 << 20
"""Maximum size of an answer; one with 8 GPUs and 16 pods takes 40 KB."""
STALE_SECONDS: Final = 120.0
TEMPERATURE: Final = "DCGM_FI_DEV_GPU_TEMP"
POWER: Final = "DCGM_FI_DEV_POWER_USAGE"
BUSY: Final = "DCGM_FI_DEV_GPU_UTIL"
FIELDS: Final = frozenset({TEMPERATURE, POWER, BUSY})

OK: Final = 200


class Agents(Protocol):
    """A source of agents' addresses."""

    def addresses(self) -> Mapping[str, str]:
        """Return addresses by node."""


class AgentUnavailable(Exception):
    """An agent gave no usable answer; the text says why."""


class AgentPoller:
    """Readings by node and UUID.

    Args:
        agents: addresses of the agents.
        nodes: returns names of known nodes; other agents are not read.
        settings: how agents are read.
        now: returns monotonic seconds.
    """

    def __init__(
        self,
        agents: Agents,
        nodes: Callable[[], Collection[str]],
        settings: ReadingSettings,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agents, self._nodes, self._settings, self._now = agents, nodes, settings, now
        self._known: dict[str, tuple[Mapping[str, Reading], float]] = {}
        self._unavailable: set[str] = set()
        self._trusted = CaFile(Path(settings.ca))

    def get(self, node: str) -> Mapping[str, Reading]:
        """Return a node's readings by UUID; the same object until new data arrives."""
        found, at = self._known.get(node, (NOTHING, 0.0))
        return found if found and self._now() - at <= STALE_SECONDS else NOTHING

    async def run(self) -> None:
        """Read all agents repeatedly, without end."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        connector = aiohttp.TCPConnector(limit=MAX_CONCURRENT)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as session:
            while True:
                began = self._now()
                await self.poll(session)
                took = self._now() - began
                await asyncio.sleep(max(self._settings.seconds - took, self._settings.seconds / 2))

    async def poll(self, session: aiohttp.ClientSession) -> None:
        """Read all agents once."""
        known = set(self._nodes())
        agents = {node: at for node, at in self._agents.addresses().items() if node in known}
        self._known = {node: kept for node, kept in self._known.items() if node in agents}
        self._unavailable &= agents.keys()
        turns = asyncio.Semaphore(MAX_CONCURRENT)

        async def ask(node: str, address: str) -> None:
            async with turns:
                await self._poll_agent(session, node, address)

        await asyncio.gather(*(ask(node, address) for node, address in agents.items()))

    async def _poll_agent(self, session: aiohttp.ClientSession, node: str, address: str) -> None:
        try:
            read = readings(await self._text(session, address))
        except AgentUnavailable as error:
            if node not in self._unavailable:
                log.warning("the agent of node %s has no readings: %s", node, error)
            self._unavailable.add(node)
            return
        self._unavailable.discard(node)
        before, _ = self._known.get(node, (NOTHING, 0.0))
        self._known[node] = (before if before == read else read, self._now())

    async def _text(self, session: aiohttp.ClientSession, address: str) -> str:
        """Return the text of an agent's metrics; raises AgentUnavailable."""
        host = f"[{address}]" if ":" in address else address
        try:
            token = self._settings.token.read_text().strip()
            async with session.get(
                f"https://{host}:{self._settings.port}/metrics",
                ssl=self._trusted.context(),
                server_hostname=self._settings.host,
                allow_redirects=False,
                headers={"Authorization": f"Bearer {token}", "Accept-Encoding": ""},
            ) as response:
                if response.status != OK:
                    raise AgentUnavailable(f"it answers with status {response.status}")
                return await _bounded(response)
        except TimeoutError as error:
            raise AgentUnavailable(f"no answer within {ANSWER_SECONDS:.0f} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise AgentUnavailable(str(error) or type(error).__name__) from error


async def _bounded(response: aiohttp.ClientResponse) -> str:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BYTES:
            raise AgentUnavailable(f"its answer is larger than {MAX_BYTES >> 20} MiB")
    return bytes(body).decode(errors="replace")


def readings(text: str) -> dict[str, Reading]:
    """Return readings by UUID, of GPUs with any data."""
    return {
        uuid: Reading(
            temperature_celsius=_whole(figures.get(TEMPERATURE)),
            power_watts=_whole(figures.get(POWER)),
            busy_percent=_whole(figures.get(BUSY)),
        )
        for uuid, figures in scraped.figures(text, FIELDS).items()
    }


def _whole(figure: float | None) -> float | None:
    return None if figure is None else float(round(figure))
