# SPDX-License-Identifier: Apache-2.0
"""Findings of `benchmarks/mps_products.py` on GPU hosts, and the chart's use of them."""

import importlib
import json
import pathlib

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
REPORTS = sorted((ROOT / "docs" / "reports").glob("mps-products-*.json"))
SOUND = yaml.safe_load((ROOT / "charts" / "gpupack" / "values.yaml").read_text())["shares"][
    "correctThreadPercentages"
]


@pytest.fixture
def products(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("mps_products")


def results(*wrong):
    return [{"percent": percent, "wrong": bad} for percent, bad in enumerate(wrong, start=1)]


@pytest.mark.parametrize(
    ("wrong", "ranges"),
    [
        ((0, 0, 0), [[1, 3]]),
        ((0, 5, 0, 0), [[1, 1], [3, 4]]),
        ((7, 0, 7), [[2, 2]]),
        ((1, 1), []),
    ],
)
def test_neighbouring_sound_percentages_are_one_range(products, wrong, ranges):
    assert products.correct_ranges(results(*wrong)) == ranges


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_the_charts_sound_percentages_are_those_of_the_reports(path):
    report = json.loads(path.read_text())
    for result in report["results"]:
        inside = any(first <= result["percent"] <= last for first, last in SOUND[report["device"]])
        assert inside == (result["wrong"] == 0), result


def test_a_model_in_the_chart_has_a_report():
    assert {json.loads(path.read_text())["device"] for path in REPORTS} == set(SOUND)
