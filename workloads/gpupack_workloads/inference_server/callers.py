# SPDX-License-Identifier: Apache-2.0
"""Callers that wait for tokens, and the delivery from the engine's thread."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import Receive

from gpupack_workloads.inference_server.engine import Event


@dataclass(eq=False)
class Caller:
    """The listener of a sequence.

    Attributes:
        arrived: time of arrival by the monotonic clock.
        events: that have not been sent.
        last: when the latest token came.
        ended: whether it was counted.
    """

    arrived: float
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    last: float = 0.0
    ended: bool = False


class Delivery:
    """Delivers events from the engine's thread to the server's event loop."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.take: Callable[[list[Event]], None] = lambda _: None

    def __call__(self, events: list[Event]) -> None:
        """Hand events to the loop; a closed loop has no listeners."""
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.take, events)


async def arrived_tokens(caller: Caller) -> tuple[list[int], str | None]:
    """Wait for tokens; return all that are there, and why the answer ends if it does."""
    tokens: list[int] = []
    finished = None
    each = await caller.events.get()
    while True:
        if each.token is not None:
            tokens.append(each.token)
        finished = each.finished or finished
        if caller.events.empty():
            return tokens, finished
        each = caller.events.get_nowait()


async def collected(caller: Caller) -> tuple[list[int], str]:
    """Return a whole answer."""
    tokens: list[int] = []
    finished = None
    while finished is None:
        more, finished = await arrived_tokens(caller)
        tokens += more
    return tokens, finished


async def hung_up(receive: Receive) -> None:
    """Return when the caller has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
