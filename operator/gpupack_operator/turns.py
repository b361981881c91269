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
from gpupack_operator.settings import PlanSettings
from gpupack_operator.waiting_jobs import Key, WaitingJobs

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
        waiting_jobs: WaitingJobs,
        on_orders: Callable[[TurnsResponse], None],
    ) -> None:
        """Create a listener.

        `on_orders` receives all orders to end, move or grow attempts each time.
        """
        self._settings = settings
        self._waiting_jobs = waiting_jobs
        self._on_orders = on_orders
        self._queue, self._number = "", 0
        self._last_failure = ""

    async def run(self) -> None:
        """Listen until cancelled."""
        async with ExtenderClient(self._settings, seconds=CALL_SECONDS) as client:
            while True:
                response = await self._listen(client)
                if response is None:
                    await client.aclose()
                    await asyncio.sleep(PAUSE_SECONDS)
                else:
                    self._process(response)

    def _process(self, response: TurnsResponse) -> None:
        self._queue, self._number = response.queue, response.number
        if response.all_jobs:
            self._waiting_jobs.notify_all()
        self._on_orders(response)
        for job in response.jobs:
            self._waiting_jobs.notify(Key(job.namespace, job.name))

    async def _listen(self, client: ExtenderClient) -> TurnsResponse | None:
        """Return the next answer, or None if there is none; log the cause once."""
        query = {"queue": self._queue, "number": str(self._number)}
        try:
            status, body = await client.call("GET", names.TURNS_ROUTE, query=query)
            if status == OK:
                response = msgspec.json.decode(body, type=TurnsResponse)
                self._last_failure = ""
                return response
            self._log_failure(f"{status}: {body[:200].decode(errors='replace')}")
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
            self._log_failure(type(error).__name__)
        return None

    def _log_failure(self, trouble: str) -> None:
        if trouble != self._last_failure:
            self._last_failure = trouble
            log.warning("no notifications from the extender: %s", trouble)
