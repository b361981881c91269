# SPDX-License-Identifier: Apache-2.0
"""Conditions for valid figures of the placement rate."""

import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def rate(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("placement_rate")


@pytest.mark.parametrize(
    ("calls", "writes", "is_telling"), [(9.5, 1.0, True), (0.0, 1.0, False), (9.5, 1.1, False)]
)
def test_a_run_without_filter_calls_or_with_too_many_writes_fails(rate, calls, writes, is_telling):
    idle = {"filter_calls_per_second": 0.0}
    busy = {"filter_calls_per_second": calls, "extender_writes_per_bound_pod": writes}
    assert rate.is_telling({"idle": idle, "all": busy}) == is_telling
