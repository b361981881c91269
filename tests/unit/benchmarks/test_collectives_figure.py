# SPDX-License-Identifier: Apache-2.0
"""The picture of docs/workloads.md."""

import importlib
import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[3]
ROW = {"operation": "all-reduce", "in_place": False, "us": 2.0, "bus_gb_per_s": 350.0}
SMALL = {"operation": "all-reduce", "method": "nccl", "us": 20.0, "graph_us": 9.0}


@pytest.fixture
def figure(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("collectives_figure")


def report(path, **changed):
    rows = [row | {"size_bytes": size} for row in (ROW | changed, SMALL) for size in (8, 16)]
    path.write_text(json.dumps({"result": {"rows": rows}}))
    return path


def test_the_picture_in_the_documents_is_what_its_report_says(figure, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert figure.main(["--check"]) == 0


def test_a_picture_of_other_figures_is_noticed(figure, tmp_path, capsys):
    picture = tmp_path / "picture.svg"
    old, new = report(tmp_path / "old"), report(tmp_path / "new", bus_gb_per_s=300.0)
    assert figure.main(["--check"], picture=picture, report=old) == 1
    figure.main([], picture=picture, report=old)
    assert figure.main(["--check"], picture=picture, report=old) == 0
    assert figure.main(["--check"], picture=picture, report=new) == 1
    assert "make workloads-table" in capsys.readouterr().out
