# SPDX-License-Identifier: Apache-2.0
import datetime as dt
import email.utils

import pytest
from aiohttp import web

from gpupack_kubeclient.clock import ServerClock
from gpupack_kubeclient.resources import NODES

NOON = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)


class Monotonic:
    """A clock that changes only when it is set."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def monotonic():
    return Monotonic()


@pytest.fixture
def clock(monotonic):
    """An API server whose wall clock is years behind."""
    return ServerClock(monotonic=monotonic, wall=lambda: 0.0)


def date(seconds):
    """A Date header, so many seconds after noon."""
    moment = NOON + dt.timedelta(seconds=seconds)
    return email.utils.format_datetime(moment.replace(microsecond=0), usegmt=True)


def seconds_after_noon(clock):
    return (clock.now() - NOON).total_seconds()


def test_before_any_answer_our_own_clock_is_believed(clock):
    assert clock.now() == dt.datetime.fromtimestamp(0, dt.UTC)


def test_between_answers_time_passes_by_the_monotonic_clock(clock, monotonic):
    clock.observe(date(0), asked=monotonic())
    monotonic.seconds += 90
    assert seconds_after_noon(clock) == 90


def test_our_own_clock_is_left_as_it_is_while_no_answer_contradicts_it(monotonic):
    clock = ServerClock(monotonic=monotonic, wall=lambda: NOON.timestamp() + 0.7)
    clock.observe(date(0.7), asked=monotonic())
    assert seconds_after_noon(clock) == pytest.approx(0.7)


def test_our_own_clock_may_jump_after_the_start(monotonic):
    wall = [NOON.timestamp()]
    clock = ServerClock(monotonic=monotonic, wall=lambda: wall[0])
    wall[0] += 3600
    assert seconds_after_noon(clock) == pytest.approx(0)


def test_quick_answers_narrow_the_time_down_to_what_the_header_cuts_off(clock, monotonic):
    clock.observe(date(0.4), asked=monotonic())
    for tenth in range(5, 30):
        monotonic.seconds = 1000.0 + tenth / 10 - 0.4
        clock.observe(date(tenth / 10), asked=monotonic())
    assert seconds_after_noon(clock) == pytest.approx(2.9, abs=0.11)


def test_an_answer_that_was_long_on_its_way_moves_nothing(clock, monotonic):
    clock.observe(date(0), asked=monotonic())
    monotonic.seconds += 60
    clock.observe(date(5), asked=1005.0)
    assert seconds_after_noon(clock) == 60


@pytest.mark.parametrize("step", [3600, -7200])
def test_a_clock_of_the_server_that_is_set_right_is_followed(clock, monotonic, step):
    clock.observe(date(0), asked=monotonic())
    monotonic.seconds += 10
    clock.observe(date(10 + step), asked=monotonic())
    assert seconds_after_noon(clock) == pytest.approx(10 + step, abs=1)


@pytest.mark.parametrize("header", ["", "yesterday", "Sat, 99 Nov 2026 12:00:00 GMT"])
def test_a_date_that_cannot_be_read_says_nothing(clock, monotonic, header):
    clock.observe(date(0), asked=monotonic())
    clock.observe(header, asked=monotonic())
    assert seconds_after_noon(clock) == 0


async def test_every_answer_of_the_api_server_sets_the_clock_a_refusal_too(serve):
    async def refuse(request):
        return web.json_response({}, status=404, headers={"Date": date(0)})

    async with serve(refuse) as api:
        with pytest.raises(Exception, match="404"):
            await api.get(NODES, "n")
        assert 0 <= seconds_after_noon(api.clock) < 5
