# SPDX-License-Identifier: Apache-2.0
"""A live picture of nodes that survives every lost connection.

    connect ─► look, draw, wait ─► look …
     ▲                            │ an error that may pass
     └──── the last picture stays, with its age and what is wrong ◄┘

The first picture is required: before it, an error ends the command.
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
from gpupack_kubeclient.errors import KubeError

Seen = tuple[list[NodeBar], Status | None]
Look = Callable[[], Awaitable[Seen]]
Connect = Callable[[], AbstractAsyncContextManager[Look]]

REDRAWN_PER_SECOND: Final = 1
"""Redraw rate, so that the age of a picture visibly grows."""

SLOW_SECONDS: Final = 3.0
"""Maximum seconds of a read until the picture shows its age."""


class Connection:
    """A source of nodes, which is opened again after it was closed.

    Args:
        connect: opens the source.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._look: Look | None = None
        self._stack = contextlib.AsyncExitStack()

    async def look(self) -> Seen:
        """Connect where there is no connection, and read; raises CliError, KubeError."""
        if self._look is None:
            self._look = await self._stack.enter_async_context(self._connect())
        return await self._look()

    async def close(self) -> None:
        """Close the connection."""
        self._look = None
        await self._stack.aclose()


class Picture:
    """The last known state, as a picture.

    Args:
        console: terminal.
        seen: nodes, and the cluster's sums.
        fresh_seconds: maximum age of a picture that does not show its age.
    """

    def __init__(self, console: Console, seen: Seen, *, fresh_seconds: float) -> None:
        self._console, self._fresh_seconds = console, fresh_seconds
        self.see(seen)

    def see(self, seen: Seen) -> None:
        """Take a new state."""
        self._seen, self._moment, self._trouble = seen, dt.datetime.now(dt.UTC), ""

    def keep(self, trouble: str) -> None:
        """Keep the last state, with the reason."""
        self._trouble = trouble

    def drawn(self) -> Group:
        """Draw the picture, with its age where there is no newer one."""
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
    """Show the nodes until the task is cancelled.

    Args:
        connect: opens the source; a read from it may fail later.
        chosen: returns the part to show.
        console: a terminal.
        interval_seconds: interval of reads.

    Raises:
        CliError, KubeError: the first read fails, or a later one is no longer permitted.
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
