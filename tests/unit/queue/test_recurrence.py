# SPDX-License-Identifier: Apache-2.0
"""When a reservation has windows, and which reservations stand."""

import datetime as dt

import pytest
from queue_world import quota

from gpupack_queue import Quotas, ReservationId, Tenant
from gpupack_queue.errors import InvalidWindow
from gpupack_queue.quotas.tree import Tree
from gpupack_queue.windows.acceptance import MAX_PER_TENANT, Claim, refused
from gpupack_queue.windows.recurrence import MAX_WINDOWS, Schedule


def at(text):
    return dt.datetime.fromisoformat(text)


def shown(schedule, now):
    """Windows as text, such as «2026-10-23T09:00 to 17:00», in UTC."""
    texts = []
    for start, end in schedule.intervals(at(now)):
        begins, ends = (dt.datetime.fromtimestamp(each, dt.UTC) for each in (start, end))
        texts.append(f"{begins:%Y-%m-%dT%H:%M} to {ends:%H:%M}")
    return texts


def day(rule="", zone="UTC", start="2026-10-19T07:00:00Z", end="2026-10-19T15:00:00Z"):
    return Schedule(at(start), at(end), rule, zone)


def test_a_window_without_a_rule_is_there_once_and_not_after_its_end():
    assert shown(day(), "2026-10-01T00:00:00Z") == ["2026-10-19T07:00 to 15:00"]
    assert shown(day(), "2026-10-19T14:59:59Z") == ["2026-10-19T07:00 to 15:00"]
    assert shown(day(), "2026-10-19T15:00:00Z") == []


def test_a_repeated_window_keeps_its_time_of_day_when_summer_time_ends():
    found = shown(day("FREQ=WEEKLY;BYDAY=MO,FR", "Europe/Berlin"), "2026-10-22T00:00:00Z")
    assert found[:2] == ["2026-10-23T07:00 to 15:00", "2026-10-26T08:00 to 16:00"]


def test_a_window_that_has_begun_is_among_the_windows():
    found = shown(day("FREQ=DAILY"), "2026-10-25T12:00:00Z")
    assert found[0] == "2026-10-25T07:00 to 15:00"


def test_count_and_until_end_a_repeated_window():
    assert len(shown(day("FREQ=DAILY;COUNT=3"), "2026-10-01T00:00:00Z")) == 3
    until = day("FREQ=DAILY;UNTIL=20261020T070000Z")
    assert len(shown(until, "2026-10-01T00:00:00Z")) == 2


def test_windows_beyond_the_horizon_and_beyond_a_year_do_not_count():
    assert shown(day(), "2026-01-01T00:00:00Z") == []
    daily = day("FREQ=DAILY")
    assert len(shown(daily, "2026-11-01T00:00:00Z")) <= MAX_WINDOWS
    assert shown(daily, "2027-10-22T00:00:00Z") == []


def test_a_rule_without_any_window_ends_at_once():
    assert shown(day("FREQ=MONTHLY;BYMONTHDAY=31;INTERVAL=99"), "2027-01-01T00:00:00Z") == []


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"rule": "FREQ=SOMETIMES"}, "cannot be read"),
        ({"rule": "FREQ=DAILY;BYDAY=XX"}, "cannot be read"),
        ({"rule": "FREQ=DAILY;UNTIL=20261020"}, "cannot be read"),
        ({"rule": "FREQ=DAILY", "zone": "Mars/Olympus"}, "there is no time zone Mars/Olympus"),
        ({"rule": "FREQ=DAILY", "zone": "../etc/passwd"}, "there is no time zone"),
        ({"end": "2026-10-19T07:00:00Z"}, "not after its start"),
        ({"end": "2026-11-19T07:00:00Z"}, "longer than 336 hours"),
        ({"rule": "FREQ=DAILY", "end": "2026-10-20T08:00:00Z"}, "longer than 24 hours"),
    ],
)
def test_times_and_rules_that_make_no_sense_are_refused(schedule, message):
    with pytest.raises(InvalidWindow, match=message):
        day(**schedule)


TREE = Tree(Quotas((quota("lab", 8, H100=4), quota("web", 2))), {})


def claim(name, gpus, *intervals, model="T4", declared=0.0):
    tenant = Tenant(name.partition("/")[0])
    return Claim(ReservationId(name), tenant, model, gpus * 1000, declared, intervals)


def test_a_namespace_reserves_at_most_what_its_quota_guarantees_at_any_time():
    first = claim("lab/a", 5, (0, 10), (20, 30), declared=1)
    apart = claim("lab/b", 8, (10, 20), declared=2)
    together = claim("lab/c", 3, (25, 40), declared=3)
    too_much = claim("lab/d", 4, (5, 7), declared=4)
    found = refused((too_much, together, apart, first), TREE)
    assert set(found) == {"lab/d"}
    assert (found["lab/d"].nominal, found["lab/d"].others, found["lab/d"].at) == (8000, 5000, 5)


def test_an_overlap_that_begins_with_the_older_reservation_counts():
    older = claim("lab/a", 5, (10, 20), declared=1)
    younger = claim("lab/b", 5, (0, 30), declared=2)
    assert set(refused((younger, older), TREE)) == {"lab/b"}


def test_models_count_apart_as_in_quotas():
    h100 = claim("lab/a", 4, (0, 10), model="H100 80GB", declared=1)
    others = claim("lab/b", 8, (0, 10), declared=2)
    assert not refused((h100, others), TREE)
    assert set(refused((claim("lab/c", 5, (0, 10), model="H100"),), TREE)) == {"lab/c"}


def test_a_namespace_without_a_quota_reserves_nothing():
    assert set(refused((claim("free/a", 1, (0, 10)),), TREE)) == {"free/a"}


def test_a_refused_reservation_takes_nothing_from_later_ones():
    claims = (claim("lab/a", 9, (0, 10), declared=1), claim("lab/b", 8, (0, 10), declared=2))
    assert set(refused(claims, TREE)) == {"lab/a"}


def test_a_namespace_has_a_limited_number_of_reservations():
    many = [claim(f"web/{n:02}", 1, (n, n + 1), declared=n) for n in range(MAX_PER_TENANT + 1)]
    found = refused(many, TREE)
    assert set(found) == {f"web/{MAX_PER_TENANT}"}
    assert found[f"web/{MAX_PER_TENANT}"].is_too_many
