# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from gpupack_cli.log_position import LogPosition


def line(second, nano, text):
    return f"2026-11-21T05:24:{second:02}.{nano:09}Z {text}".encode()


def read(position, log, *, until):
    """Return the shown lines of a log whose connection breaks after this many lines."""
    first = position.query.get("sinceTime", "").encode()
    position.resume()
    again = [each for each in log if each[:19] >= first[:19]]
    return [found for each in again[:until] if (found := position.new_text(each)) is not None]


def test_times_are_removed_from_lines():
    assert LogPosition().new_text(line(1, 5, "a b  c")) == b"a b  c"
    assert LogPosition().new_text(line(1, 5, "")) == b""


def test_a_line_without_a_time_is_shown_unchanged():
    assert LogPosition().new_text(b"unable to retrieve container logs") == (
        b"unable to retrieve container logs"
    )


def test_a_log_begins_with_its_first_line():
    assert LogPosition().query == {}


def test_after_a_lost_connection_no_line_is_lost_or_repeated():
    log = [line(i // 3, i % 3, f"{i}") for i in range(60)]
    position, shown = LogPosition(), []
    for until in (10, 3, 30, 100):
        shown += read(position, log, until=until)
    assert shown == [f"{i}".encode() for i in range(60)]


def test_equal_lines_with_different_times_are_both_shown():
    log = [line(1, 1, "same"), line(1, 2, "same")]
    position = LogPosition()
    assert read(position, log, until=1) + read(position, log, until=9) == [b"same", b"same"]


def test_lines_slightly_out_of_order_are_not_lost():
    log = [line(3, 9, "stdout"), line(3, 5, "stderr"), line(4, 0, "end")]
    position = LogPosition()
    assert read(position, log, until=1) == [b"stdout"]
    assert read(position, log, until=9) == [b"stderr", b"end"]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.lists(st.integers(1, 20)))
def test_each_line_is_shown_once_wherever_the_connection_breaks(seconds, breaks):
    log = [line(second, number, f"{number}") for number, second in enumerate(sorted(seconds))]
    position, shown = LogPosition(), []
    for until in (*breaks, len(log)):
        shown += read(position, log, until=until)
    assert shown == [f"{number}".encode() for number in range(len(log))]


def test_only_the_last_seconds_of_a_long_log_are_remembered():
    position = LogPosition()
    for number in range(20_000):
        minute, second = divmod(number, 60)
        moment = f"2026-11-21T{minute // 60:02}:{minute % 60:02}:{second:02}.000000000Z"
        position.new_text(f"{moment} {'x' * 1000}".encode())
    assert len(position._known) < 10
