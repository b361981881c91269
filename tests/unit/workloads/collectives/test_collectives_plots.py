# SPDX-License-Identifier: Apache-2.0
import importlib.util

import pytest

from gpupack_workloads.collectives.plots import curves, plot, require_plots
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.results import Result

ROWS = [
    {
        "operation": "all-gather",
        "in_place": place,
        "size_bytes": size,
        "us": 2.0,
        "bus_gb_per_s": 1.0,
    }
    for size in (8, 16)
    for place in (False, True)
]
SMALL = [
    {"operation": "all-reduce", "method": "nccl", "size_bytes": size, "us": 20.0, "graph_us": 9.0}
    for size in (8, 16)
]


def test_in_place_and_out_of_place_are_separate_lines():
    assert curves(ROWS, "us") == {
        "all-gather": [(8.0, 2.0), (16.0, 2.0)],
        "all-gather, in place": [(8.0, 2.0), (16.0, 2.0)],
    }


def test_three_figures_are_drawn(tmp_path):
    result = Result(
        workload="collectives",
        headline="",
        verified=True,
        simulated=True,
        metrics={},
        rows=[*ROWS, *SMALL, {"setting": "defaults", "bus_gb_per_s": 1.0}],
    )
    require_plots(tmp_path / "new")
    plot(result, tmp_path / "new")
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["bus_bandwidth.png", "small.png", "time.png"]


def test_figures_without_matplotlib_are_refused_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadArgument, match="needs matplotlib"):
        require_plots(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadArgument, match="cannot be made"):
        require_plots(tmp_path / "file" / "folder")
