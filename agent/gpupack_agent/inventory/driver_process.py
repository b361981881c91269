# SPDX-License-Identifier: Apache-2.0
"""The agent's side of the process that queries the driver.

A driver call that does not return may hang in the kernel, where no signal ends it. Such a process
is killed and abandoned, and another one replaces it. The number of abandoned processes has a limit.
At the limit the driver is not queried until one of them has ended.
"""

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence

import msgspec

from gpupack_agent.errors import DriverTimeout, InventoryUnavailable
from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.driver_root import DriverSearch
from gpupack_agent.inventory.layout import Place
from gpupack_agent.inventory.messages import (
    REPLIES,
    Done,
    Event,
    Forget,
    Found,
    Partition,
    Reading,
    Request,
    Scan,
    Unavailable,
    line,
)

log = logging.getLogger(__name__)

Answer = Reading | Found | Done | Unavailable

MAX_STUCK = 3
"""The largest number of killed processes that have not ended."""

PARTITION_SECONDS = 60.0
"""The time limit for all slices of a GPU; the driver creates one in some tenths of a second."""

LINE_BYTES = 4 * 1024 * 1024
"""The largest size of one reply; 128 GPUs take a tenth of it."""


def command(search: DriverSearch) -> tuple[str, ...]:
    """Return the command that starts the process."""
    module = "gpupack_agent.inventory.prober"
    where = (f"--host-root={search.host}", f"--driver-root={search.setting}")
    return (sys.executable, "-m", module, *where)


class DriverProcess:
    """The process that queries the driver, started at the first request and after it has ended.

    Args:
        command: the command of the process.
        timeout_seconds: the time limit for each GPU, and for the calls that concern no single GPU.
        on_event: called at each driver event.
        vendor: vendor of the driver, for messages.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout_seconds: float,
        on_event: Callable[[], None],
        vendor: str = "NVIDIA",
    ) -> None:
        self._command, self._seconds, self._on_event = command, timeout_seconds, on_event
        self._vendor = vendor
        self._process: Process | None = None
        self._stuck: list[Process] = []
        self._replies: asyncio.Queue[Answer | None] = asyncio.Queue()
        self._listening: asyncio.Task[None] | None = None

    @property
    def stuck(self) -> int:
        """Return the number of killed processes that have not ended, because they hang."""
        self._stuck = [each for each in self._stuck if each.returncode is None]
        return len(self._stuck)

    async def scan(self, skip: Sequence[int]) -> Findings:
        """Scan all GPUs except those of the indices `skip`.

        Raises:
            DriverTimeout: a call did not return in time.
            InventoryUnavailable: the answer contains no list of GPUs, or the process has ended.
        """
        try:
            reply = await self._request(Scan(tuple(skip)), self._seconds)
        except InventoryUnavailable:
            # The driver may be replaced by another one; only a new process loads its library.
            await self._kill()
            raise
        if not isinstance(reply, Found):
            await self._kill()
            raise InventoryUnavailable(
                "the process that queries the driver sent an unexpected reply"
            )
        return reply.findings

    async def partition(self, uuid: str, places: Sequence[Place]) -> None:
        """Give a GPU these MIG slices.

        Raises:
            DriverTimeout: the driver did not finish in time.
            InventoryUnavailable: the driver refuses.
        """
        await self._request(Partition(uuid, tuple(places)), PARTITION_SECONDS)

    async def _request(self, request: Request, seconds: float) -> Found | Done:
        """Send a request and return the answer; each GPU has `seconds` for its part."""
        await self._send(request)
        reading: int | None = None
        while True:
            try:
                async with asyncio.timeout(seconds):
                    reply = await self._replies.get()
            except TimeoutError:
                await self._kill()
                raise DriverTimeout(seconds, index=reading, vendor=self._vendor) from None
            match reply:
                case Reading(index=reading):
                    pass
                case Found() | Done():
                    return reply
                case Unavailable(message=message, reason=reason):
                    raise InventoryUnavailable(message, reason=reason)
                case None:
                    await self._kill()
                    raise InventoryUnavailable("the process that queries the driver has ended")

    async def forget(self) -> None:
        """Forget all past errors; a process that does not run yet knows none."""
        if self._process is not None:
            await self._send(Forget())

    async def close(self) -> None:
        """End the process, and forget those that hang."""
        if self._process is not None:
            await self._kill()
        self._stuck.clear()

    async def _send(self, request: Request) -> None:
        process = self._process or await self._start()
        assert process.stdin is not None  # noqa: S101 - for the type checker
        process.stdin.write(line(request))
        with contextlib.suppress(ConnectionError):  # the replies show the end of the process
            await process.stdin.drain()

    async def _start(self) -> Process:
        if self.stuck >= MAX_STUCK:
            raise InventoryUnavailable(
                f"{self.stuck} calls to the {self._vendor} driver hang and cannot be ended: see "
                "the host's kernel log, and restart the host"
            )
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, limit=LINE_BYTES
        )
        self._process, self._replies = process, asyncio.Queue()
        self._listening = asyncio.create_task(self._listen(process, self._replies))
        return process

    async def _listen(self, process: Process, replies: asyncio.Queue[Answer | None]) -> None:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        try:
            async for each in process.stdout:
                reply = REPLIES.decode(each)
                if isinstance(reply, Event):
                    self._on_event()
                else:
                    replies.put_nowait(reply)
        except (msgspec.MsgspecError, ValueError) as error:
            log.error("the process that queries the driver sent an invalid reply: %s", error)  # noqa: TRY400
        replies.put_nowait(None)

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if self._listening is not None:
            self._listening.cancel()
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        self._stuck.append(process)
        # A process that does not hang in the kernel ends at once.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await process.wait()
