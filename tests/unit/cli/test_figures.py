# SPDX-License-Identifier: Apache-2.0
"""The command line passes the same cases as the page, in figures.test.ts."""

import datetime as dt
import json
from pathlib import Path

import pytest

from gpupack_apiserver.node_views import gigabytes
from gpupack_cli import figures

CASES = json.loads((Path(__file__).parents[2] / "helpers/figures.json").read_text())
FORMATS = {
    "percent": figures.percent,
    "whole": figures.whole,
    "hours": figures.figure,
    "cost": lambda value: figures.figure(value, 2),
    "memory": figures.memory,
    "mebibytes": figures.mebibytes,
    "temperature": figures.temperature,
    "power": figures.power,
    "duration": figures.duration,
    "count": lambda number: figures.count(number, "GPU"),
    "queued": lambda of: figures.queued(*of),
}
NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("quantity", "value", "shown"), [(name, *case) for name in CASES for case in CASES[name]]
)
def test_figures_are_formatted_as_on_the_page(quantity, value, shown):
    assert FORMATS[quantity](value) == shown


def test_an_age_is_counted_from_a_time_or_is_empty():
    assert figures.age("2026-11-25T11:59:00Z", NOW) == "1m"
    assert figures.age(NOW - dt.timedelta(hours=3), NOW) == "3h"
    assert figures.age(None, NOW) == figures.age("", NOW) == ""


def test_gb_of_the_rest_api_convert_to_the_original_mib():
    assert [figures.mebibytes(gigabytes(mib)) for mib in range(1, 300_000, 7)] == list(
        range(1, 300_000, 7)
    )
