# SPDX-License-Identifier: Apache-2.0
import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def bandwidth(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gang_bandwidth")


def test_the_ratio_is_of_medians(bandwidth):
    runs = {
        "two pods": [{"bus_gb_per_s": each, "latency_us": 200.0} for each in (1.0, 2.0, 9.0)],
        "one pod": [{"bus_gb_per_s": each, "latency_us": 100.0} for each in (0.1, 3.0, 4.0)],
    }
    middle = bandwidth.medians(runs)
    assert bandwidth.ratio(middle, "bus_gb_per_s") == pytest.approx(1.5)
    assert bandwidth.ratio(middle, "latency_us") == pytest.approx(0.5)
