# SPDX-License-Identifier: Apache-2.0
"""The table of slow GPUs in docs/acceptance.md, and the command that makes it."""

import importlib
import json
import pathlib
import shutil
import sys

import pytest
from alike import assert_alike
from processes import run_process

ROOT = pathlib.Path(__file__).parents[3]
GUIDE = (ROOT / "docs/acceptance.md").read_text()
COMMAND = ("benchmarks/slow_gpus.py", "--write")
assert " ".join(COMMAND) in GUIDE


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("slow_gpus")


def test_the_table_is_what_the_report_says(benchmark):
    kept = json.loads((ROOT / benchmark.REPORT).read_text())
    assert_alike(GUIDE, benchmark.replaced(GUIDE, benchmark.MARKS, benchmark.table(kept)))


@pytest.mark.timeout(300)
def test_the_documented_command_makes_report_and_table(benchmark, tmp_path):
    (tmp_path / "docs/reports").mkdir(parents=True)
    shutil.copy(ROOT / benchmark.DOCUMENT, tmp_path / "docs")
    small = ("--nodes=4", "--days=10", "--warm-up=1", "--seeds=2", "--loads", "0.7")
    command = [sys.executable, str(ROOT / COMMAND[0]), *COMMAND[1:], *small]
    done = run_process(command, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / benchmark.REPORT).read_text())
    kinds = made["loads"]["0.7"]
    assert [run["lost_percent"] for run in kinds["alike"]] == [0.0, 0.0]
    assert sum(run["lost_percent"] for run in kinds["not known"]) > 0
    assert kinds["used last, and pace"] != kinds["used last"]
    assert_alike(benchmark.table(made), done.stdout.strip())
    assert benchmark.table(made) in (tmp_path / benchmark.DOCUMENT).read_text()
