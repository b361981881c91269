# SPDX-License-Identifier: Apache-2.0
"""A process with servers and essential tasks, which runs until a signal arrives.

A process without one of its parts must not seem healthy, so it ends when a part ends.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from gpupack_httpserver.errors import TaskEnded
from gpupack_httpserver.server import Server


def run_until_signal(
    work: Callable[[asyncio.Event], Coroutine[Any, Any, None]], *, log_level: str
) -> None:
    """Run `work(stop)` on uvloop; a termination signal sets `stop`."""
    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    async def begun() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await work(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(begun())


async def serve(server: Server, stop: asyncio.Event) -> None:
    """Serve until `stop`.

    Raises:
        TaskEnded: the server ended before.
    """
    try:
        await server.serve()
    finally:
        server.close()
    if not stop.is_set():
        raise TaskEnded(f"the server on port {server.config.port} ended by itself")


async def essential(name: str, work: Coroutine[Any, Any, None]) -> None:
    """Run work that never ends.

    Raises:
        TaskEnded: it ended.
    """
    await work
    raise TaskEnded(f"{name} ended by itself")
