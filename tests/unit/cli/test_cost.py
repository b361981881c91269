# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest

from gpupack_cli.answers import CostRow
from gpupack_cli.commands.cost import cells, moment
from gpupack_cli.errors import UsageWrong

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
def test_a_time_is_a_moment_or_a_while_ago(text, found):
    assert moment(text, NOW) == found


@pytest.mark.parametrize("text", ["", "yesterday", "7", "7y", "-7d", "9999999d"])
def test_what_is_no_time_is_said_with_what_to_write(text):
    with pytest.raises(UsageWrong, match="write 24h, 7d or 2w"):
        moment(text, NOW)


def test_figures_that_nobody_measured_are_unknown():
    row = CostRow(namespace="team", allocated_gpu_hours=2.5, cost=7.5)
    assert cells(row, "namespace") == (
        "team",
        "2.5",
        "unknown",
        "unknown",
        "0.0",
        "unknown",
        "7.50",
    )
    assert cells(CostRow(), "cohort") == ("-", "0.0", *["unknown"] * 2, "0.0", *["unknown"] * 2)
    assert cells(CostRow(namespace="team", job="a"), "job")[:2] == ("team", "a")


def test_what_a_short_job_took_is_not_shown_as_nothing():
    row = CostRow(namespace="team", allocated_gpu_hours=0.00278, unknown_gpu_hours=0.001)
    assert cells(row, "namespace")[1:5] == ("0.0028", "unknown", "unknown", "0.001")
