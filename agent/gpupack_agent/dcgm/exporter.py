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

ASK_SECONDS: Final = 15.0
"""The time between two requests: by default the exporter itself collects every 30 s."""
LOOK_SECONDS: Final = 1.0
"""The time until the next attempt if there is no exporter's pod, or it did not answer."""
ANSWER_SECONDS: Final = 5.0
STALE_SECONDS: Final = 60.0
"""The time for which an answer counts."""
MAX_BYTES: Final = 4 << 20
"""The largest size of one answer; 8 GPUs with their pods take 100 KB."""
OK: Final = 200


class ExporterSilent(Exception):
    """An error: the exporter gave no usable answer; the text is the reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
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
        self._told = Told({}, float("-inf"))
        self._forgiven: dict[str, int] = {}
        self._answered = True
        self._answers = False
        """Whether the exporter answered the last request."""

    @property
    def figures(self) -> Figures:
        """Return the figures of the last answer; empty if it is too old."""
        is_fresh = self._now() - self._told.at < STALE_SECONDS
        return self._told.figures if is_fresh else {}

    def merged(self, findings: Findings) -> Findings:
        """Return the findings of a scan with the exporter's additions."""
        return fields.merged(findings, self.figures, self._forgiven)

    def forget(self) -> None:
        """Forget the XIDs that the exporter shows, because the GPUs were repaired.

        An XID counts again after the exporter has shown another value. The exporter shows the last
        XID until DCGM itself restarts.
        """
        self._forgiven |= _xids(self._told.figures)

    async def run(self) -> None:
        """Query the exporter repeatedly, until cancelled."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
            while True:
                await self.ask(session)
                # An exporter that has just started has its address before it listens.
                await asyncio.sleep(ASK_SECONDS if self._answers else LOOK_SECONDS)

    async def ask(self, session: aiohttp.ClientSession) -> None:
        """Query the exporter once; if it fails, the last answer counts until it is too old."""
        url, self._answers = self._where(), False
        if not url:
            return
        try:
            answer = await answered(session, url)
        except ExporterSilent as error:
            if self._answered:
                log.warning("DCGM exporter at %s: %s; the driver's own figures count", url, error)
            self._answered = False
            return
        if not self._answered:
            log.info("DCGM exporter at %s answers again", url)
        self._answered = self._answers = True
        self._take(answer)

    def _where(self) -> str | None:
        return self.pods.url if self._url == AUTO else self._url

    def _take(self, figures: Figures) -> None:
        shown = _xids(figures)
        self._forgiven = {
            uuid: number for uuid, number in self._forgiven.items() if shown.get(uuid) == number
        }
        self._told = Told(figures, self._now())


async def answered(session: aiohttp.ClientSession, url: str) -> Figures:
    """Return the figures of the exporter at a URL; raises ExporterSilent."""
    from gpupack_serving import scraped  # noqa: PLC0415 - the parser, loaded only if needed

    try:
        async with session.get(
            url, allow_redirects=False, headers={"Accept": "text/plain", "Accept-Encoding": ""}
        ) as response:
            if response.status != OK:
                raise ExporterSilent(f"it answers with status {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ExporterSilent(f"its answer is larger than {MAX_BYTES >> 20} MiB")
        told = bytes(body).decode(errors="replace")
        return await asyncio.to_thread(scraped.figures, told, fields.NAMES)
    except TimeoutError as error:
        raise ExporterSilent(f"no answer within {ANSWER_SECONDS:.0f} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ExporterSilent(str(error) or type(error).__name__) from error


def _xids(figures: Figures) -> Mapping[str, int]:
    found = {uuid: of_gpu.get(fields.XIDS.dcgm) for uuid, of_gpu in figures.items()}
    return {uuid: int(number) for uuid, number in found.items() if number}
