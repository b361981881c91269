# SPDX-License-Identifier: Apache-2.0
"""The runner of the GPU benchmarks, with small stand-ins for the workloads."""

import importlib
import json
import pathlib
import sys
import time

import pytest

from gpupack_workloads import commands

ROOT = pathlib.Path(__file__).parents[3]
RESULT = {
    "workload": "gemm", "headline": "1 TFLOP/s", "verified": True, "simulated": False,
    "metrics": {"device": "NVIDIA H200 NVL", "tflops": 1.0},
}  # fmt: skip
SUCCEEDS = f"print('some noise'); print('''{json.dumps(RESULT)}''')"


@pytest.fixture
def suite(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("workloads_suite")


@pytest.fixture
def go(suite, monkeypatch, tmp_path):
    """Return a function that runs programs (name, GPUs, program) and returns how each ended."""

    def go(*programs, gpus=2, seconds=60, limit=60):
        by_name = {name: program for name, _, program in programs}
        monkeypatch.setattr(suite, "command", lambda run: [sys.executable, "-c", by_name[run.name]])
        runs = [suite.Run(name, "gemm", gpus=count, seconds=limit) for name, count, _ in programs]
        names = [str(index) for index in range(gpus)]
        deadline = time.monotonic() + seconds
        started = suite.Suite(names, out=tmp_path, logs=tmp_path, deadline=deadline)
        return list(started.go(runs))

    return go


def spans(path, name, other=None):
    """Return a program that records its time and GPUs; it waits until `other` has begun."""
    return f"""
import os, pathlib, time
start = time.monotonic()
began = pathlib.Path({str(path)!r})
(began / "{name}.began").touch()
while not (began / "{other or name}.began").exists():
    time.sleep(0.01)
time.sleep(0.4)
gpus = os.environ["CUDA_VISIBLE_DEVICES"]
(began / "{name}").write_text(f"{{start}} {{time.monotonic()}} {{gpus}}")
"""


def noted(path, name):
    start, end, gpus = (path / name).read_text().split()
    return float(start), float(end), gpus


def test_a_successful_run_writes_its_result_by_number_and_kind_of_gpus(suite, go, tmp_path):
    (ended,) = go(("gemm", 1, SUCCEEDS))
    assert suite.keep(ended, out=tmp_path, driver="580", versions={"torch": "2.15"})
    kept = json.loads((tmp_path / "gemm-1xh200-nvl.json").read_text())
    assert (kept["result"], kept["gpus"], kept["driver"]) == (RESULT, 1, "580")


def test_the_report_has_the_version_of_triton_that_computed(suite, go, tmp_path):
    result = RESULT | {"metrics": RESULT["metrics"] | {"triton_version": "3.9.0"}}
    (ended,) = go(("gemm", 1, f"print({json.dumps(result)!r})"))
    installed = {"torch": "2.15", "triton": "3.6.0"}
    assert suite.keep(ended, out=tmp_path, driver="", versions=installed)
    kept = json.loads((tmp_path / "gemm-1xh200-nvl.json").read_text())
    assert kept["versions"] == {"torch": "2.15", "triton": "3.9.0"}


def test_a_failed_run_does_not_change_the_older_report(suite, go, tmp_path):
    older = tmp_path / "gemm-1xh200-nvl.json"
    older.write_text("older")
    (ended,) = go(("gemm", 1, SUCCEEDS + "; raise SystemExit(3)"))
    assert ended.status == 3
    assert not suite.keep(ended, out=tmp_path, driver="", versions={})
    assert older.read_text() == "older"


def test_an_unverified_result_does_not_change_the_older_report(suite, go, tmp_path, capsys):
    older = tmp_path / "gemm-1xh200-nvl.json"
    older.write_text("older")
    unverified = json.dumps(RESULT | {"verified": False})
    (ended,) = go(("gemm", 1, f"print({unverified!r})"))
    assert not suite.keep(ended, out=tmp_path, driver="", versions={})
    assert older.read_text() == "older"
    assert "NOT VERIFIED: 1 TFLOP/s" in capsys.readouterr().out


def test_runs_are_parallel_and_those_of_all_gpus_run_alone_at_the_end(go, tmp_path):
    others = {"a": "b", "b": "a"}
    go(*[(n, 2 if n == "c" else 1, spans(tmp_path, n, others.get(n))) for n in "cab"])
    a, b, c = (noted(tmp_path, name) for name in "abc")
    assert max(a[0], b[0]) < min(a[1], b[1])
    assert c[0] >= max(a[1], b[1])
    assert ({a[2], b[2]}, sorted(c[2].split(","))) == ({"0", "1"}, ["0", "1"])


def test_the_run_that_may_take_longest_starts_first(suite, monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "command", lambda run: [sys.executable, "-c", ""])
    runs = [suite.Run("short", "gemm", seconds=10), suite.Run("long", "gemm", seconds=20)]
    deadline = time.monotonic() + 60
    started = suite.Suite(["0"], out=tmp_path, logs=tmp_path, deadline=deadline)
    assert [ended.run.name for ended in started.go(runs)] == ["long", "short"]


def test_a_run_that_times_the_cpu_runs_alone(suite, monkeypatch, tmp_path):
    programs = {name: spans(tmp_path, name) for name in ("timed", "other")}
    monkeypatch.setattr(suite, "command", lambda run: [sys.executable, "-c", programs[run.name]])
    runs = [suite.Run("timed", "matmul", alone=True), suite.Run("other", "gemm", seconds=10)]
    deadline = time.monotonic() + 60
    list(suite.Suite(["0", "1"], out=tmp_path, logs=tmp_path, deadline=deadline).go(runs))
    assert noted(tmp_path, "timed")[0] >= noted(tmp_path, "other")[1]


def test_parallel_gangs_have_different_rendezvous_ports(go, tmp_path):
    program = "import os; print(os.environ['GPUPACK_JOB'], os.environ['GPUPACK_RENDEZVOUS'])"
    meetings = [ended.output.split() for ended in go(("a", 1, program), ("b", 1, program))]
    assert len({job for job, _ in meetings}) == len({place for _, place in meetings}) == 2


def test_a_run_of_more_gpus_than_there_are_is_left_out(go, capsys):
    assert go(("big", 4, SUCCEEDS)) == []
    assert "big: not started, it takes 4 GPUs" in capsys.readouterr().out


def test_a_run_that_takes_too_long_is_stopped_with_all_its_processes(go, tmp_path):
    child = "import time; time.sleep(60)"
    program = (
        "import subprocess, sys, time;"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}]);"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    (ended,) = go(("slow", 1, program), limit=5)
    assert ended.status == -9
    stat = pathlib.Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_no_run_starts_when_no_time_is_left(go, capsys):
    assert go(("late", 1, SUCCEEDS), seconds=0) == []
    assert "late: not started, no time is left" in capsys.readouterr().out


def test_an_unknown_name_is_an_error(suite):
    with pytest.raises(SystemExit, match="no such run: nothing; there are "):
        suite.chosen("gemm,nothing", "", 1)


def test_runs_are_chosen_by_name_and_by_number_of_gpus(suite):
    assert {run.name for run in suite.chosen("", "gemm", 1)} & {"gemm", "matmul-multi"} == set()
    assert [run.gpus for run in suite.chosen("resnet50", "", 2)] == [1]
    assert [run.gpus for run in suite.chosen("resnet50", "", 4)] == [1, 4]


def test_every_workload_accepts_the_arguments_of_its_runs(suite):
    for run in suite.RUNS:
        commands.load(run.workload).make_context(run.workload, list(run.arguments))


def test_no_two_runs_write_the_same_report(suite):
    reports = [(run.name, run.gpus) for run in suite.RUNS]
    assert len(set(reports)) == len(reports)
