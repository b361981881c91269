# SPDX-License-Identifier: Apache-2.0
"""Listener for notifications of the extender's queue about jobs that it can admit.

One call waits at the extender until there is a notification. Nothing depends on it: a waiting job
repeats its request by itself, only later.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import aiohttp
import msgspec

from gpupack_crds import names
from gpupack_crds.plan import TurnsResponse
from gpupack_operator.extender_client import ExtenderClient
from gpupack_operator.plan_line import Key, PlanLine
from gpupack_operator.settings import PlanSettings

log = logging.getLogger(__name__)

CALL_SECONDS: Final = 40.0
"""Time limit of a call; the extender answers within 20 s, with or without a notification."""
PAUSE_SECONDS: Final = 1.0
"""Pause after a call without an answer."""
OK: Final = 200


class TurnListener:
    """Listener that wakes jobs in the line when the queue can admit them."""

    def __init__(
        self,
        settings: PlanSettings,
        line: PlanLine,
        ordered: Callable[[TurnsResponse], None],
    ) -> None:
        """Create a listener.

        `ordered` receives all orders to end, move or grow attempts each time.
        """
        self._settings = settings
        self._line = line
        self._ordered = ordered
        self._queue, self._number = "", 0
        self._trouble = ""

    async def run(self) -> None:
        """Listen until cancelled."""
        async with ExtenderClient(self._settings, seconds=CALL_SECONDS) as client:
            while True:
                heard = await self._listen(client)
                if heard is None:
                    await client.aclose()
                    await asyncio.sleep(PAUSE_SECONDS)
                else:
                    self._hear(heard)

    def _hear(self, heard: TurnsResponse) -> None:
        self._queue, self._number = heard.queue, heard.number
        if heard.all_jobs:
            self._line.ask_anew()
        self._ordered(heard)
        for job in heard.jobs:
            self._line.called(Key(job.namespace, job.name))

    async def _listen(self, client: ExtenderClient) -> TurnsResponse | None:
        """Return the next answer, or None if there is none; log the cause once."""
        query = {"queue": self._queue, "number": str(self._number)}
        try:
            status, body = await client.call("GET", names.TURNS_ROUTE, query=query)
            if status == OK:
                heard = msgspec.json.decode(body, type=TurnsResponse)
                self._trouble = ""
                return heard
            self._complain(f"{status}: {body[:200].decode(errors='replace')}")
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
            self._complain(type(error).__name__)
        return None

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("the extender does not say whose turn it is: %s", trouble)
