# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest
from rest_answers import cost_row

from gpupack_cli.commands.cost import GROUPS, cells, parse_time
from gpupack_cli.errors import UsageInvalid
from gpupack_cost import Group

NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("24h", "2026-11-24T12:00:00+00:00"),
        ("7d", "2026-11-18T12:00:00+00:00"),
        ("2w", "2026-11-11T12:00:00+00:00"),
        ("2026-11-01T00:00:00Z", "2026-11-01T00:00:00+00:00"),
        ("2026-11-01", "2026-11-01T00:00:00+00:00"),
    ],
)
def test_a_time_is_absolute_or_an_age(text, found):
    assert parse_time(text, NOW) == found


def test_the_command_has_the_groups_of_the_rest_api():
    assert set(GROUPS) == set(Group)


@pytest.mark.parametrize("text", ["", "yesterday", "7", "7y", "-7d", "9999999d"])
def test_an_invalid_time_is_refused_with_examples(text):
    with pytest.raises(UsageInvalid, match="write an age such as 24h, 7d or 2w"):
        parse_time(text, NOW)


def test_unmeasured_figures_are_unknown():
    row = cost_row(namespace="team", allocated_gpu_hours=2.5, cost=7.5)
    assert cells(row, "namespace") == (
        "team",
        "2.5",
        "unknown",
        "unknown",
        "0.0",
        "unknown",
        "7.50",
    )
    assert cells(cost_row(), "cohort") == ("-", "0.0", *["unknown"] * 2, "0.0", *["unknown"] * 2)
    assert cells(cost_row(namespace="team", job="a"), "job")[:2] == ("team", "a")


def test_a_small_usage_is_not_shown_as_zero():
    row = cost_row(namespace="team", allocated_gpu_hours=0.00278, unknown_gpu_hours=0.001)
    assert cells(row, "namespace")[1:5] == ("0.0028", "unknown", "unknown", "0.001")
