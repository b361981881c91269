# SPDX-License-Identifier: Apache-2.0
"""`top` while what it looks at comes and goes; the terminal is a text."""

import asyncio
import contextlib
import io
import re

import pytest
from rich.console import Console

from gpupack_cli import live_view
from gpupack_cli.bars import NodeBar
from gpupack_cli.errors import NotAllowed, ServiceAway
from gpupack_kubeclient.errors import Refused, Unreachable


class World:
    """Answers looks in turn: a node's name, or an error; counts connections."""

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
        told = self.answers.pop(0)
        if isinstance(told, BaseException):
            raise told
        return [NodeBar(told, "H100", "·", 1, 1, 0.0)], None

    async def watched(self):
        """What was drawn until the last answer was given."""
        console = Console(file=self.out, force_terminal=True, width=100, height=20)
        watching = asyncio.ensure_future(
            live_view.watched(
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


AGE = re.compile(r"This picture is \d+ s old; trying again\.")

PASSING = [
    ServiceAway("kubectl ended"),
    Unreachable("no answer"),
    Refused("busy", status=429, reason=""),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
async def test_a_picture_stays_with_its_age_and_goes_on_over_a_new_connection(error):
    world = World("first", *[error] * 3, "second")
    shown = await world.watched()
    assert AGE.search(shown)
    assert shown.index("first") < shown.index("trying again") < shown.rindex("second")
    assert world.opened == 4
    assert world.closed == world.opened


async def test_a_gap_of_any_length_does_not_end_it():
    world = World("first", *[ServiceAway("away")] * 50, "second")
    assert "second" in await world.watched()


@pytest.mark.parametrize("error", PASSING, ids=repr)
async def test_without_a_first_picture_an_error_ends_it(error):
    with pytest.raises(type(error)):
        await World(error).watched()


async def test_a_right_that_is_taken_away_ends_it():
    with pytest.raises(NotAllowed):
        await World("first", NotAllowed("no right")).watched()


async def test_a_look_that_takes_long_shows_how_old_the_picture_is():
    world = World("first")
    picture = live_view.Picture(
        Console(file=world.out, width=100, height=20), ([], None), fresh_seconds=0.0
    )
    Console(file=world.out, width=100, height=20).print(picture.drawn())
    assert AGE.search(world.out.getvalue())
