# SPDX-License-Identifier: Apache-2.0
"""The picture of docs/workloads/collectives.md."""

import importlib
import json
import pathlib

import pytest
from alike import assert_same_picture

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
    found, expected = figure.drawn(figure.REPORT), figure.PICTURE.read_text()
    assert_same_picture(found, expected)


def test_another_report_gives_another_picture(figure, tmp_path):
    old, new = report(tmp_path / "old"), report(tmp_path / "new", bus_gb_per_s=300.0)
    with pytest.raises(AssertionError):
        assert_same_picture(figure.drawn(new), figure.drawn(old))
