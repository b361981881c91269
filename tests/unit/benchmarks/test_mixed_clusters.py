# SPDX-License-Identifier: Apache-2.0
"""The command of docs/packing.md for mixed clusters, on a few nodes."""

import importlib
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from processes import run_process

ROOT = Path(__file__).parents[3]
SMALL = """\
pods: 200
nodes:
  - {name: t4, count: 2, gpus: 4, model: T4, gpuMemory: 16}
  - {name: a100, count: 2, gpus: 8, model: A100, gpuMemory: 80}
sizes: [{weight: 2, share: {percent: 50}}, {weight: 2, gpus: 1}, {weight: 1, gpus: 4}]
wishes: [{weight: 2}, {weight: 1, minGpuMemory: 40}, {weight: 1, gpuModels: [T4]}]
"""
COMMAND = re.compile(r"^python (benchmarks/mixed_clusters\.py.*)$", re.MULTILINE)
(DOCUMENTED,) = COMMAND.findall((ROOT / "docs/packing.md").read_text())
LESS = ("--seeds", "2", "--warm-up", "1", "--measured", "2", "--policies", "default,worst-fit")
TABLES = ("filling", "load 0.8", "load 0.95", "load 1")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return the document after the documented command with a small experiment."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs/packing.md", folder / "docs")
    (folder / "small.yaml").write_text(SMALL)
    script, *options = shlex.split(DOCUMENTED)
    command = [sys.executable, ROOT / script, *options, "--description", "small.yaml", *LESS]
    done = run_process(command, cwd=folder)
    assert done.returncode == 0, done.stderr
    return (folder / "docs/packing.md").read_text()


def table(document, name):
    begin, end = f"<!-- mixed, {name} -->", f"<!-- end of mixed, {name} -->"
    return document.partition(begin)[2].partition(end)[0].strip().splitlines()


@pytest.mark.parametrize("name", TABLES)
def test_each_table_has_a_line_for_each_policy(written, name):
    _, _, *lines = table(written, name)
    assert [line.split("|")[1].strip() for line in lines] == ["default", "worst-fit"]


def test_nothing_else_of_the_document_changes(written):
    def without_tables(document):
        for name in TABLES:
            document = document.replace("\n".join(table(document, name)), "")
        return document

    assert without_tables(written) == without_tables((ROOT / "docs/packing.md").read_text())


def test_policies_significantly_behind_the_best_are_marked(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    table_of = importlib.import_module("mixed_clusters").table
    wait, allocated = ("load 1", "wait one"), ("load 1", "allocation %")
    found = {
        "ahead": {allocated: [90.0, 92.0, 91.0], wait: [0.1, 0.2, 0.1]},
        "noisy": {allocated: [91.5, 90.0, 90.0], wait: [0.3, 0.1, 0.1]},
        "behind": {allocated: [80.0, 82.0, 81.5], wait: [0.5, 0.6, 0.5]},
    }
    assert table_of(found, "load 1").splitlines()[2:] == [
        "| ahead | 91.00 | 0.133 |",
        "| noisy | 90.50 | 0.167 |",
        "| behind | 81.17 ↓ | 0.533 ↓ |",
    ]


def test_the_document_has_all_policies():
    document = (ROOT / "docs/packing.md").read_text()
    assert {len(table(document, name)) for name in TABLES} == {2 + 9}
