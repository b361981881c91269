# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/packing.md, on a trace of a few nodes, as a user runs them."""

import importlib
import pathlib
import re
import shlex
import shutil
import sys

import pytest
from processes import run_process

ROOT = pathlib.Path(__file__).parents[3]
NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n{n},64000,262144,{gpus},T4\n" for n, gpus in enumerate((2, 4, 8))
)
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{n},1000,1,{gpus},{milli},\n"
    for n, (gpus, milli) in enumerate([(1, 300), (1, 700), (1, 1000), (2, 1000), (8, 1000)])
)
PUBLISHED = (
    "workload,policy,alloc_at_90,alloc_at_100,alloc_at_130,seeds\n"
    "default,FGD,1,2,3,10\ndefault,BestFit,1,2,3,10\ndefault,Random,1,2,3,10\n"
)
COMMAND = re.compile(r"^python (benchmarks/packing\.py (?:.*\\\n)*.*)$", re.MULTILINE)
DOCUMENTED = COMMAND.findall((ROOT / "docs/packing.md").read_text())
SMALL = (
    *("--workloads", "default", "--loads", "1.0", "--seeds", "2", "--busy-seeds", "2"),
    *("--warm-up", "1", "--measured", "2", "--write"),
)


@pytest.fixture
def folder(tmp_path):
    """The documents of a checkout, with traces in another folder."""
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs/packing.md", tmp_path / "docs")
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "openb_node_list_gpu_node.csv").write_text(NODES)
    for workload in ("default", "multigpu30"):
        (traces / f"openb_pod_list_{workload}.csv").write_text(PODS)
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    (traces / "published_allocation.csv").write_text(PUBLISHED)
    return tmp_path


def table(document, name):
    inside = document.partition(f"<!-- {name} -->")[2].partition(f"<!-- end of {name} -->")[0]
    return inside.strip().splitlines()


def test_the_tables_are_made_by_one_command_and_a_second_call_runs_nothing(folder):
    command = [sys.executable, ROOT / "benchmarks/packing.py", "--traces", "traces", *SMALL]
    first = run_process(command, cwd=folder)
    assert first.returncode == 0, first.stderr
    document = (folder / "docs/packing.md").read_text()
    _, _, filled = table(document, "filling")
    assert re.fullmatch(r"\| default \|( \d+\.\d\d/\d+\.\d\d \|){3}", filled)
    _, _, dropping = table(document, "busy, drop")
    signed = r"[+-]\d+\.\d+ ± \d+\.\d+"
    assert re.match(rf"\| default \| 1 \| 2 \| \d+\.\d\d \({signed}\)", dropping)
    heads, _, waiting = table(document, "busy, fifo-skip")
    assert heads.count("|") == waiting.count("|") == 11
    second = run_process(command, cwd=folder)
    assert (second.returncode, second.stderr) == (0, "")
    assert (folder / "docs/packing.md").read_text() == document


def test_the_document_names_the_commands_of_its_small_tables():
    assert len(DOCUMENTED) == 2


@pytest.mark.parametrize("command", DOCUMENTED)
def test_a_command_of_the_document_writes_its_table(command, folder):
    before = (folder / "docs/packing.md").read_text()
    words = shlex.split(command.replace("\\\n", " ").replace("TRACES", "traces"))
    done = run_process([sys.executable, *words], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "docs/packing.md").read_text() != before


def test_published_figures_that_cannot_be_reproduced_fail_the_command(folder):
    done = run_process([sys.executable, ROOT / "tests/truth/reproduce.py", "traces"], cwd=folder)
    assert done.returncode == 1, done.stderr
    _, _, *figures = done.stdout.splitlines()
    assert [line.split()[:2] for line in figures] == [
        [policy, demand] for policy in ("best-fit", "fgd") for demand in ("100", "130")
    ]
    assert all("more than 0.15 away" in line for line in figures)


@pytest.fixture
def differences(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("packing_differences")


def judged(differences, ours, base, *, more_is_better=False, figures=20):
    figure = differences.Figure("wait", digits=2, more_is_better=more_is_better)
    return differences.judged(differences.difference(figure, ours, base), figures)


def test_significantly_worse_figures_are_marked(differences):
    base = [1.0, 1.0, 1.0, 1.0]
    assert judged(differences, [1.0, 1.2, 0.9, 1.1], base) == "1.05 (+0.05 ± 0.21)"
    assert judged(differences, [1.2, 1.3, 1.1, 1.2], base) == "1.20 (+0.20 ± 0.13) ↑"
    assert judged(differences, [1.2, 1.21, 1.2, 1.2], base).endswith(" ↑↑")


def test_more_allocation_is_not_worse(differences):
    found = judged(differences, [2.0, 2.1, 2.0], [1.0, 1.0, 1.0], more_is_better=True)
    assert found.startswith("2.03 (+1.03 ±")
    assert "↑" not in found


def test_zero_waits_are_shown_as_zero(differences):
    assert judged(differences, [0.0, 0.0002], [0.0001, 0.0]) == "0"
