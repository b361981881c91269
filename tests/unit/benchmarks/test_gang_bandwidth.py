# SPDX-License-Identifier: Apache-2.0
import importlib
import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def bandwidth(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gang_bandwidth")


def test_the_ratio_is_of_medians(bandwidth):
    figures = bandwidth.BACKENDS["gloo"].figures
    runs = {
        "two pods": [{"bus_gb_per_s": each, "latency_us": 200.0} for each in (1.0, 2.0, 9.0)],
        "one pod": [{"bus_gb_per_s": each, "latency_us": 100.0} for each in (0.1, 3.0, 4.0)],
    }
    found = bandwidth.summary(runs, figures)
    assert found["medians"]["two pods"]["bus_gb_per_s"] == 2.0
    assert found["ratio_to_two_pods"] == {"one pod": {"bus_gb_per_s": 1.5, "latency_us": 0.5}}


def test_a_report_keeps_figures_of_other_backends(bandwidth, tmp_path):
    path = tmp_path / "report.json"
    bandwidth.written(path, "gloo", {"runs": {}})
    bandwidth.written(path, "mpi", {"runs": {"one pod": []}})
    assert json.loads(path.read_text()) == {"gloo": {"runs": {}}, "mpi": {"runs": {"one pod": []}}}


def test_ranks_of_mpirun_are_measured_by_its_own_workload_and_without_shared_memory(bandwidth):
    ways = bandwidth.BACKENDS["mpi"].ways
    shared = bandwidth.gang("a", "mpi", ways["one pod"], size_bytes=8)["spec"]
    assert (shared["workload"]["name"], shared["podPerWorker"]) == ("mpi", False)
    by_tcp = bandwidth.gang("a", "mpi", ways["one pod, TCP"], size_bytes=8)["spec"]
    (container,) = by_tcp["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "OMPI_MCA_btl", "value": "self,tcp"}]
    both = bandwidth.gang("a", "mpi", ways["one pod"], size_bytes=8, variables={"X": "1"})
    (container,) = both["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "X", "value": "1"}]
