# SPDX-License-Identifier: Apache-2.0
"""The table of learned durations, and the documented command that writes it."""

import importlib
import json
import pathlib
import re
import shlex
import shutil
import sys

import pytest
from alike import assert_alike
from processes import run_process

ROOT = pathlib.Path(__file__).parents[3]
GUIDE = (ROOT / "docs/queueing/measurements.md").read_text()
(COMMAND,) = re.findall(r"^python (benchmarks/learned_durations\.py .*)$", GUIDE, re.MULTILINE)


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("learned_durations")


def test_the_table_is_what_the_report_says(benchmark):
    kept = json.loads((ROOT / benchmark.REPORT).read_text())
    assert_alike(GUIDE, benchmark.replaced(GUIDE, benchmark.MARKS, benchmark.table(kept)))


@pytest.mark.timeout(300)
def test_the_documented_command_makes_report_and_table(benchmark, tmp_path):
    (tmp_path / "docs/reports").mkdir(parents=True)
    (tmp_path / benchmark.DOCUMENT).parent.mkdir()
    shutil.copy(ROOT / benchmark.DOCUMENT, tmp_path / benchmark.DOCUMENT)
    small = ("--nodes", "2", "--days", "3", "--warm-up", "0.5", "--seeds", "2", "--kinds", "2")
    command = shlex.split(COMMAND)
    done = run_process(
        [sys.executable, ROOT / command[0], *command[1:], *small], cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / benchmark.REPORT).read_text())
    assert list(made["durations"]) == ["exact", "learned", "none"]
    for known in ("exact", "none"):
        assert [run["stopped"] for run in made["durations"][known].values()] == [0, 0]
    assert_alike(benchmark.table(made), done.stdout.strip())
    assert benchmark.table(made) in (tmp_path / benchmark.DOCUMENT).read_text()
