# SPDX-License-Identifier: Apache-2.0
"""The table of docs/your-own-image.md."""

import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("launchers_table")


@pytest.fixture
def job():
    processes = [[0, "0", "4", "0", "cpu", "1.5"], [0, "1", "4", "1", "cpu", "1.5"]]
    processes += [[1, "2", "4", "0", "cpu", "1.5"], [1, "3", "4", "1", "cpu", "1.5"]]
    return {
        "example": "accelerate",
        "workers": 2,
        "gpus": 2,
        "command": ["sh", "-c", f"exec accelerate launch {'--an-option ' * 6}/scripts/train.py"],
        "processes": processes,
    }


def test_a_row_has_the_findings_of_each_workers_processes(table, job):
    row = table.table({"accelerate-2-2": job}).splitlines()[-1]
    manifest = "[accelerate](../examples/launchers/accelerate.yaml)"
    found = "2 x 2 | 0, 1; 2, 3 | 4 | 0, 1; 0, 1 | cpu"
    assert row == f"| {manifest} | `accelerate … train.py` | {found} |"


def test_differences_between_processes_are_listed(table, job):
    job["processes"][3][2] = "2"
    assert "| 2, 4 |" in table.table({"accelerate-2-2": job})
