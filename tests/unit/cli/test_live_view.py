# SPDX-License-Identifier: Apache-2.0
"""`top` over lost connections; the terminal is a text."""

import asyncio
import contextlib
import io
import re

import pytest
from rich.console import Console

from gpupack_cli import live_view
from gpupack_cli.bars import NodeBar
from gpupack_cli.errors import PermissionDenied, RestUnavailable
from gpupack_kubeclient.errors import Refused, Unreachable


class World:
    """A source that gives answers in turn: a node's name, or an error; counts connections."""

    def __init__(self, *answers):
        self.answers, self.opened, self.closed = list(answers), 0, 0
        self.out = io.StringIO()
        self.ended = asyncio.Event()

    @contextlib.asynccontextmanager
    async def connect(self):
        self.opened += 1
        try:
            yield self.look
        finally:
            self.closed += 1

    async def look(self):
        if not self.answers:
            self.ended.set()
            await asyncio.sleep(60)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return [NodeBar(answer, "H100", "·", 1, 1, 0.0)], None

    async def watched(self):
        """Return the output until the last answer was given."""
        console = Console(file=self.out, force_terminal=True, width=100, height=20)
        watching = asyncio.ensure_future(
            live_view.run_live_view(
                self.connect, lambda seen: seen, console=console, interval_seconds=0.01
            )
        )
        ending = asyncio.ensure_future(self.ended.wait())
        await asyncio.wait({watching, ending}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if watching.done():
            await watching
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return self.out.getvalue()


AGE = re.compile(r"This data is \d+ s old; retrying\.")

PASSING = [
    RestUnavailable("kubectl ended"),
    Unreachable("no answer"),
    Refused("busy", status=429, reason=""),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
async def test_the_view_shows_its_age_and_continues_over_a_new_connection(error):
    world = World("first", *[error] * 3, "second")
    shown = await world.watched()
    assert AGE.search(shown)
    assert shown.index("first") < shown.index("retrying") < shown.rindex("second")
    assert world.opened == 4
    assert world.closed == world.opened


async def test_an_outage_of_any_length_does_not_end_the_view():
    world = World("first", *[RestUnavailable("away")] * 50, "second")
    assert "second" in await world.watched()


@pytest.mark.parametrize("error", PASSING, ids=repr)
async def test_an_error_of_the_first_read_ends_the_view(error):
    with pytest.raises(type(error)):
        await World(error).watched()


async def test_a_removed_permission_ends_the_view():
    with pytest.raises(PermissionDenied):
        await World("first", PermissionDenied("no right")).watched()


async def test_a_slow_read_shows_the_age_of_the_data():
    world = World("first")
    picture = live_view.Picture(
        Console(file=world.out, width=100, height=20), ([], None), fresh_seconds=0.0
    )
    Console(file=world.out, width=100, height=20).print(picture.render())
    assert AGE.search(world.out.getvalue())
