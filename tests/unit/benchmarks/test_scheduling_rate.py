# SPDX-License-Identifier: Apache-2.0
"""Figures of the scheduling rate and of pending jobs."""

import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.fixture
def rate(benchmark):
    return benchmark("scheduling_rate")


def test_all_schedulers_get_the_same_sizes_of_which_the_largest_come_first(rate):
    drawn = rate.sizes(2000)
    assert drawn == rate.sizes(2000) == sorted(drawn, reverse=True)
    assert set(drawn) == {1, 2, 4, 8}
    assert sum(drawn) < 8000  # a thousand nodes have as many


def test_a_rate_goes_from_the_first_pod_with_a_node_to_the_last(rate, benchmark):
    seen = benchmark("watched_pods").Seen()
    seen.created = {"a": 0.0, "b": 1.0, "c": 2.0}
    seen.bound = {"c": 10.0, "a": 11.0, "b": 14.0}
    found = rate.rates(seen)
    assert (found["pods"], found["seconds"], found["pods_per_second"]) == (3, 4.0, 0.5)


def test_the_table_compares_within_a_turn(rate):
    def turn(title, figure):
        return {
            "scheduler": title,
            "pods_per_second": figure,
            "nodes_used": 800,
            "nodes_free": 200,
        }

    turns = [
        turn("gpupack", 60.0),
        turn("stock, default", 30.0),
        turn("gpupack", 20.0),
        turn("stock, default", 20.0),
    ]
    rows = rate.table([{"nodes": 1000, "pods": turns, "jobs": []}]).splitlines()
    assert rows[2] == "| pods | 1,000 | gpupack | 40 (20 to 60) | 1.50 | 800 | 200 |"
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("cores", "writes", "is_within"), [(0.04, 12.0, True), (0.05, 9.0, False), (0.01, 12.1, False)]
)
def test_waiting_jobs_fail_beyond_their_bounds(benchmark, cores, writes, is_within):
    report = {"rest": {"cores": {"operator": cores}}, "life": {"writes_per_job": writes}}
    assert benchmark("waiting_jobs").is_within(report) == is_within


def test_lease_renewals_and_reviews_do_not_count_as_writes_of_a_job(benchmark):
    call, jobs = benchmark("audit_log").Call, benchmark("waiting_jobs")
    asked = [("update", "leases"), ("create", "tokenreviews"), ("patch", "gpujobs/status")]
    made = [
        call(at=0.0, account="gpupack-operator", agent="", verb=verb, what=what)
        for verb, what in [*asked, ("get", "pods")]
    ]
    assert jobs.per_job(made, 2)["writes_per_job"] == 0.5
