# SPDX-License-Identifier: Apache-2.0
"""A live view of nodes that survives every lost connection.

    connect ─► read, draw, wait ─► read …
     ▲                            │ a transient error
     └──── the last state is shown, with its age and the error ◄┘

The first read is required: its error ends the command.
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
from gpupack_cli.bars import NodeBar, render_bars
from gpupack_cli.text import plain
from gpupack_cli.worker_log import is_transient
from gpupack_kubeclient.errors import KubeError
from gpupack_restapi.nodes import Status

NodesState = tuple[list[NodeBar], Status | None]
ReadNodes = Callable[[], Awaitable[NodesState]]
Connect = Callable[[], AbstractAsyncContextManager[ReadNodes]]

REDRAWS_PER_SECOND: Final = 1
"""Redraw rate, so that the shown age increases."""

SLOW_SECONDS: Final = 3.0
"""Maximum seconds of a read until the view shows its age."""


class Connection:
    """A source of nodes, which is opened again after it was closed.

    Args:
        connect: opens the source.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._read: ReadNodes | None = None
        self._stack = contextlib.AsyncExitStack()

    async def read(self) -> NodesState:
        """Connect where there is no connection, and read; raises CliError, KubeError."""
        if self._read is None:
            self._read = await self._stack.enter_async_context(self._connect())
        return await self._read()

    async def close(self) -> None:
        """Close the connection."""
        self._read = None
        await self._stack.aclose()


class Picture:
    """The view of the last known state.

    Args:
        console: terminal.
        seen: nodes, and the cluster's sums.
        fresh_seconds: age from which the view shows it.
    """

    def __init__(self, console: Console, seen: NodesState, *, fresh_seconds: float) -> None:
        self._console, self._fresh_seconds = console, fresh_seconds
        self.update(seen)

    def update(self, seen: NodesState) -> None:
        """Replace the state."""
        self._seen, self._moment, self._trouble = seen, dt.datetime.now(dt.UTC), ""

    def keep_stale(self, trouble: str) -> None:
        """Keep the last state, and show this error with it."""
        self._trouble = trouble

    def render(self) -> Group:
        """Render the view, with its age where it is old."""
        bars, status = self._seen
        return render_bars(
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
        return f"This data is {seconds:.0f} s old; retrying. {self._trouble}".rstrip()


async def run_live_view(
    connect: Connect,
    chosen: Callable[[NodesState], NodesState],
    *,
    console: Console,
    interval_seconds: float,
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
        seen = chosen(await connection.read())
        picture = Picture(console, seen, fresh_seconds=interval_seconds + SLOW_SECONDS)
        with Live(
            console=console,
            screen=True,
            refresh_per_second=REDRAWS_PER_SECOND,
            get_renderable=picture.render,
        ) as live:
            live.refresh()
            while True:
                await asyncio.sleep(interval_seconds)
                await _refresh(connection, chosen, picture)
                live.refresh()
    finally:
        await connection.close()


async def _refresh(
    connection: Connection, chosen: Callable[[NodesState], NodesState], picture: Picture
) -> None:
    try:
        picture.update(chosen(await connection.read()))
    except (errors.CliError, KubeError) as error:
        if not _is_transient(error):
            raise
        shown = errors.from_kube_error(error) if isinstance(error, KubeError) else error
        picture.keep_stale(plain(str(shown)))
        await connection.close()


def _is_transient(error: errors.CliError | KubeError) -> bool:
    if isinstance(error, KubeError):
        return is_transient(error)
    return isinstance(error, errors.RestUnavailable | errors.ClusterUnavailable)
