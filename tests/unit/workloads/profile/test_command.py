# SPDX-License-Identifier: Apache-2.0
"""`profile` around another command; torch's profiler itself needs torch."""

import json
import os
import pathlib
import stat
import sys
import types

import msgspec
import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main
from gpupack_workloads.profile.recorded_run import around, recorded_rank
from gpupack_workloads.profile.settings import Recording
from gpupack_workloads.results import Result

DONE = Result(
    workload="matmul", headline="2 TFLOP/s", verified=True, simulated=False, metrics={"tflops": 2.0}
)
NSYS = """#!/bin/sh
case "$1" in
profile)
  echo "Collecting data..."
  echo '{done}'
  exit {status};;
stats)
  echo "Processing [x.nsys-rep] with [cuda_gpu_kern_sum.py]..."
  echo
  echo 'Time (%),Total Time (ns),Instances,Avg (ns),Name'
  echo '75.0,3000000,3,1000000.0,"gemm<float, 4>"'
  echo '25.0,1000000,10,100000.0,ncclDevKernel_AllReduce';;
esac
"""


@pytest.fixture
def recorder(monkeypatch):
    """Replacement of the recorder that marks the result."""

    def record(recording, run):
        return msgspec.structs.replace(run(), workload=f"profile of {recording.workload}")

    module = types.SimpleNamespace(record=record)
    monkeypatch.setitem(sys.modules, "gpupack_workloads.profile.recorder", module)


@pytest.fixture
def workload(monkeypatch):
    """Replacement of matmul; returns the list of its options."""
    asked = []

    def run(options):
        asked.append(options)
        return DONE

    monkeypatch.setitem(sys.modules, "gpupack_workloads.matmul", types.SimpleNamespace(run=run))
    return asked


@pytest.fixture
def nsys(monkeypatch, tmp_path):
    """Put a replacement of nsys on the PATH."""

    def install(*, status=0):
        path = tmp_path / "bin" / "nsys"
        path.parent.mkdir()
        done = msgspec.json.encode(DONE).decode()
        path.write_text(NSYS.replace("{done}", done).replace("{status}", str(status)))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    return install


def invoke(tmp_path, *arguments):
    environ = {"GPUPACK_RESULT_PATH": str(tmp_path / "message")}
    return CliRunner(env=environ).invoke(main, ["profile", "--out", str(tmp_path), *arguments])


def test_a_workload_is_run_with_its_arguments_inside_the_recorder(tmp_path, recorder, workload):
    outcome = invoke(tmp_path, "--json", "--seed", "4", "matmul", "--", "--size", "128")
    assert json.loads(outcome.stdout)["workload"] == "profile of matmul"
    assert json.loads((tmp_path / "message").read_text())["workload"] == "profile of matmul"
    assert [(options.size, options.seed) for options in workload] == [(128, 4)]


def test_processes_of_a_gang_record_themselves_as_their_environment_says(monkeypatch):
    recording = Recording("allreduce", pathlib.Path("/profile"), 7)
    seen = []

    def run(options, gang):
        seen.append(Recording.from_environ(os.environ))
        return DONE

    module = types.SimpleNamespace(run=run)
    monkeypatch.setattr(os, "environ", {})
    assert around(recording)(lambda module: module.run(None, None))(module) == DONE
    assert seen == [recording]


def test_a_process_of_a_gang_records_only_on_request(monkeypatch, recorder):
    def measure(options, backend):
        return DONE

    assert recorded_rank(measure) is measure
    for name, value in Recording("allreduce", pathlib.Path("/profile"), 7).to_environ().items():
        monkeypatch.setenv(name, value)
    assert recorded_rank(measure)(None, "gloo").workload == "profile of allreduce"


def test_nsys_names_the_kernels_and_keeps_the_workloads_figures(tmp_path, nsys):
    nsys()
    outcome = invoke(tmp_path, "--nsys", "--json", "matmul")
    result = json.loads(outcome.stdout)
    assert (result["workload"], result["headline"]) == ("profile", "matmul: 25% comm, 2 TFLOP/s")
    assert result["metrics"]["tflops"] == 2.0
    assert [(row["kernel"], row["total_us"]) for row in result["rows"]] == [
        ("gemm<float, 4>", 3000.0), ("ncclDevKernel_AllReduce", 1000.0),
    ]  # fmt: skip


def test_a_workload_that_fails_under_nsys_ends_with_its_own_status(tmp_path, nsys):
    nsys(status=4)
    assert invoke(tmp_path, "--nsys", "matmul").exit_code == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such"], "'no-such' is none of "),
        (["profile"], "'profile' is none of "),
        (["matmul", "--", "--size", "0"], "0 is not in the range"),
        (["--top", "0", "matmul"], "0 is not in the range"),
        (["--out", "/proc/nowhere", "matmul"], "the folder /proc/nowhere cannot be made"),
        (["--nsys", "matmul"], "nsys is not on PATH"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, ["profile", *arguments])
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert "torch" not in sys.modules
