# SPDX-License-Identifier: Apache-2.0
"""A live picture of nodes that outlives every connection.

    connect ─► look, draw, wait ─► look …
       ▲                            │ an error that may pass
       └──── the last picture stays, with its age and what is wrong ◄┘

A first picture has to be there: before it, an error ends the command.
"""

import asyncio
import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from rich.console import Console, Group
from rich.live import Live

from gpupack_cli import errors
from gpupack_cli.answers import Status
from gpupack_cli.bars import NodeBar, drawn
from gpupack_cli.text import plain
from gpupack_cli.worker_log import may_pass
from gpupack_kube.errors import KubeError

Seen = tuple[list[NodeBar], Status | None]
Look = Callable[[], Awaitable[Seen]]
Connect = Callable[[], AbstractAsyncContextManager[Look]]

REDRAWN_PER_SECOND: Final = 1
"""So that the age of a picture grows before a person's eyes."""

SLOW_SECONDS: Final = 3.0
"""A look that takes longer leaves a picture that has to say its age."""


class Connection:
    """What is looked at, connected to again after it was closed.

    Args:
        connect: connects.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._look: Look | None = None
        self._stack = contextlib.AsyncExitStack()

    async def look(self) -> Seen:
        """Connect where there is no connection, and look; raises CliError, KubeError."""
        if self._look is None:
            self._look = await self._stack.enter_async_context(self._connect())
        return await self._look()

    async def close(self) -> None:
        """Let go of it."""
        self._look = None
        await self._stack.aclose()


class Picture:
    """What was seen last.

    Args:
        console: where it is drawn.
        seen: nodes, and the cluster's sums.
        fresh_seconds: an older picture says its age.
    """

    def __init__(self, console: Console, seen: Seen, *, fresh_seconds: float) -> None:
        self._console, self._fresh_seconds = console, fresh_seconds
        self.see(seen)

    def see(self, seen: Seen) -> None:
        """Take a new one."""
        self._seen, self._moment, self._trouble = seen, dt.datetime.now(dt.UTC), ""

    def keep(self, trouble: str) -> None:
        """Keep the last one; say why."""
        self._trouble = trouble

    def drawn(self) -> Group:
        """Draw it, with its age where there is no newer one."""
        bars, status = self._seen
        return drawn(
            bars,
            status=status,
            moment=self._moment,
            width=self._console.width,
            lines=self._console.height,
            stale=self._stale(),
        )

    def _stale(self) -> str:
        seconds = (dt.datetime.now(dt.UTC) - self._moment).total_seconds()
        if not self._trouble and seconds < self._fresh_seconds:
            return ""
        return f"This picture is {seconds:.0f} s old; trying again. {self._trouble}".rstrip()


async def watched(
    connect: Connect, chosen: Callable[[Seen], Seen], *, console: Console, interval_seconds: float
) -> None:
    """Show what is seen until the task is cancelled.

    Args:
        connect: to what is looked at; what it yields may fail later.
        chosen: what of it is shown.
        console: a terminal.
        interval_seconds: between two looks.

    Raises:
        CliError, KubeError: it cannot be seen for the first time, or may not be seen any more.
    """
    connection = Connection(connect)
    try:
        seen = chosen(await connection.look())
        picture = Picture(console, seen, fresh_seconds=interval_seconds + SLOW_SECONDS)
        with Live(
            console=console,
            screen=True,
            refresh_per_second=REDRAWN_PER_SECOND,
            get_renderable=picture.drawn,
        ) as live:
            live.refresh()
            while True:
                await asyncio.sleep(interval_seconds)
                await _seen_again(connection, chosen, picture)
                live.refresh()
    finally:
        await connection.close()


async def _seen_again(
    connection: Connection, chosen: Callable[[Seen], Seen], picture: Picture
) -> None:
    try:
        picture.see(chosen(await connection.look()))
    except (errors.CliError, KubeError) as error:
        if not _may_pass(error):
            raise
        shown = errors.of_kube(error) if isinstance(error, KubeError) else error
        picture.keep(plain(str(shown)))
        await connection.close()


def _may_pass(error: errors.CliError | KubeError) -> bool:
    if isinstance(error, KubeError):
        return may_pass(error)
    return isinstance(error, errors.ServiceAway | errors.ClusterAway)
