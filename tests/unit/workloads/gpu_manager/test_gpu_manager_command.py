# SPDX-License-Identifier: Apache-2.0
import json
import sys
import types

import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main
from gpupack_workloads.errors import Cancelled, OutOfMemory, WorkloadError
from gpupack_workloads.gpu_manager.options import GpuManagerOptions
from gpupack_workloads.results import Result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], "0 is not in the range"),
        (["--size", "16385"], "16385 is not in the range"),
        (["--size", "8k"], "'8k' is not a valid integer"),
        (["--tasks", "0"], "0 is not in the range"),
        (["--tasks", "100001"], "100001 is not in the range"),
        (["--seed", "-1"], "-1 is not in the range"),
        (["--gpus", "2"], "No such option"),
        (["matmul"], "unexpected extra argument"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, ["gpu-manager", *arguments])
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert "torch" not in sys.modules


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Return a function that runs the command with a given session and returns the outcome."""

    def invoke(survey, *arguments):
        module = types.SimpleNamespace(survey=survey)
        monkeypatch.setitem(sys.modules, "gpupack_workloads.gpu_manager.session", module)
        environ = {"GPUPACK_RESULT_PATH": str(tmp_path / "message")}
        return CliRunner(env=environ).invoke(main, ["gpu-manager", *arguments])

    return invoke


def test_the_session_gets_the_options_of_the_command_line(invoke):
    asked = []

    def survey(options):
        asked.append(options)
        return Result(
            workload="gpu-manager", headline="h", verified=True, simulated=True, metrics={}
        )

    outcome = invoke(survey, "--size=64", "--tasks=3", "--seed=5", "--require-gpu", "--json")
    assert json.loads(outcome.stdout)["workload"] == "gpu-manager"
    assert asked == [GpuManagerOptions(size=64, tasks=3, seed=5, require_gpu=True)]


@pytest.mark.parametrize(
    ("error", "status"), [(WorkloadError("w"), 1), (OutOfMemory("m"), 4), (Cancelled("c"), 130)]
)
def test_the_kind_of_an_error_is_its_exit_status(invoke, error, status):
    def survey(options):
        raise error

    assert invoke(survey).exit_code == status
