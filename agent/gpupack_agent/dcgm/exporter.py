# SPDX-License-Identifier: Apache-2.0
"""The client of the exporter, which runs independently of the scans: no scan waits for it.

An answer counts for STALE_SECONDS. The client limits the cost of an answer: it has a time limit and
a size limit, and uses no redirects, compression or proxies. A thread parses the answer.
"""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp

from gpupack_agent.dcgm import fields
from gpupack_agent.dcgm.address import AUTO, ExporterPods
from gpupack_agent.dcgm.fields import Figures
from gpupack_agent.inventory.base import Findings

log = logging.getLogger(__name__)

SCRAPE_SECONDS: Final = 15.0
"""The time between two requests: by default the exporter itself collects every 30 s."""
RETRY_SECONDS: Final = 1.0
"""The time until the next attempt if there is no exporter's pod, or it did not answer."""
TIMEOUT_SECONDS: Final = 5.0
STALE_SECONDS: Final = 60.0
"""The time for which an answer counts."""
MAX_BYTES: Final = 4 << 20
"""The largest size of one answer; 8 GPUs with their pods take 100 KB."""
OK: Final = 200


class ExporterUnavailable(Exception):
    """An error: the exporter gave no usable answer; the text is the reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scrape:
    """One answer of the exporter.

    Attributes:
        figures: its figures.
        at: the time when it arrived, monotonic seconds.
    """

    figures: Figures
    at: float


class Exporter:
    """The exporter of this node.

    Args:
        url: its URL; `auto`: that of one of the node's pods; empty: there is none.
        pods: the node's pods that may be the exporter.
        now: returns monotonic seconds.
    """

    def __init__(
        self,
        url: str = "",
        pods: ExporterPods | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pods = pods or ExporterPods(())
        self._url, self._now = url, now
        self._last_scrape = Scrape({}, float("-inf"))
        self._ignored_xids: dict[str, int] = {}
        self._is_available = True
        self._did_answer = False
        """Whether the exporter answered the last request."""

    @property
    def figures(self) -> Figures:
        """Return the figures of the last answer; empty if it is too old."""
        is_fresh = self._now() - self._last_scrape.at < STALE_SECONDS
        return self._last_scrape.figures if is_fresh else {}

    def merge(self, findings: Findings) -> Findings:
        """Return the findings of a scan with the exporter's additions."""
        return fields.merge(findings, self.figures, self._ignored_xids)

    def forget(self) -> None:
        """Forget the XIDs that the exporter shows, because the GPUs were repaired.

        An XID counts again after the exporter has shown another value. The exporter shows the last
        XID until DCGM itself restarts.
        """
        self._ignored_xids |= _xids(self._last_scrape.figures)

    async def run(self) -> None:
        """Query the exporter repeatedly, until cancelled."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
            while True:
                await self.scrape(session)
                # An exporter that has just started has its address before it listens.
                await asyncio.sleep(SCRAPE_SECONDS if self._did_answer else RETRY_SECONDS)

    async def scrape(self, session: aiohttp.ClientSession) -> None:
        """Query the exporter once; if it fails, the last answer counts until it is too old."""
        url, self._did_answer = self._current_url(), False
        if not url:
            return
        try:
            figures = await fetch_figures(session, url)
        except ExporterUnavailable as error:
            if self._is_available:
                log.warning(
                    "cannot query DCGM exporter at %s: %s; only the driver's figures count",
                    url,
                    error,
                )
            self._is_available = False
            return
        if not self._is_available:
            log.info("DCGM exporter at %s answers again", url)
        self._is_available = self._did_answer = True
        self._store(figures)

    def _current_url(self) -> str | None:
        return self.pods.url if self._url == AUTO else self._url

    def _store(self, figures: Figures) -> None:
        shown = _xids(figures)
        self._ignored_xids = {
            uuid: number for uuid, number in self._ignored_xids.items() if shown.get(uuid) == number
        }
        self._last_scrape = Scrape(figures, self._now())


async def fetch_figures(session: aiohttp.ClientSession, url: str) -> Figures:
    """Return the figures of the exporter at a URL; raises ExporterSilent."""
    from gpupack_httpserver import scraped  # noqa: PLC0415 - the parser, loaded only if needed

    try:
        async with session.get(
            url, allow_redirects=False, headers={"Accept": "text/plain", "Accept-Encoding": ""}
        ) as response:
            if response.status != OK:
                raise ExporterUnavailable(f"it answers with status {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ExporterUnavailable(f"its answer is larger than {MAX_BYTES >> 20} MiB")
        text = bytes(body).decode(errors="replace")
        return await asyncio.to_thread(scraped.figures, text, fields.NAMES)
    except TimeoutError as error:
        raise ExporterUnavailable(f"no answer within {TIMEOUT_SECONDS:.0f} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ExporterUnavailable(str(error) or type(error).__name__) from error


def _xids(figures: Figures) -> Mapping[str, int]:
    found = {uuid: of_gpu.get(fields.XIDS.dcgm) for uuid, of_gpu in figures.items()}
    return {uuid: int(number) for uuid, number in found.items() if number}
