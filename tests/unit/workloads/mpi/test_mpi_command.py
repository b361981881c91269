# SPDX-License-Identifier: Apache-2.0
import json
import sys
import types

import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.mpi.options import MpiOptions
from gpupack_workloads.results import Result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "7"], "7 is not in the range"),
        (["--size", str(2**31)], "2147483648 is not in the range"),
        (["--grid", "4"], "4 is not in the range"),
        (["--sweeps", "0"], "0 is not in the range"),
        (["--ranks", "2"], "No such option"),
    ],
)
def test_bad_arguments_end_with_status_2_before_mpi_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, ["mpi", *arguments])
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert "mpi4py" not in sys.modules


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Return a function that runs the command with a given rank and returns outcome and message."""

    def invoke(measure, *arguments):
        module = types.SimpleNamespace(measure=measure)
        monkeypatch.setitem(sys.modules, "gpupack_workloads.mpi.session", module)
        message = tmp_path / "message"
        environ = {"GPUPACK_RESULT_PATH": str(message)}
        outcome = CliRunner(env=environ).invoke(main, ["mpi", *arguments])
        return outcome, message.read_text() if message.exists() else ""

    return invoke


def test_the_first_rank_of_a_worker_reports(invoke):
    asked = []

    def measure(options):
        asked.append(options)
        return Result(workload="mpi", headline="h", verified=True, simulated=True, metrics={})

    arguments = ("--size=64", "--grid=9", "--sweeps=3", "--seed=5", "--require-gpu")
    outcome, left = invoke(measure, *arguments)
    assert (outcome.exit_code, outcome.stdout) == (0, "h\n")
    assert json.loads(left)["workload"] == "mpi"
    assert asked == [MpiOptions(size=64, grid=9, sweeps=3, seed=5, require_gpu=True)]


def test_its_other_ranks_print_nothing(invoke):
    outcome, left = invoke(lambda options: None)
    assert (outcome.exit_code, outcome.stdout, left) == (0, "", "")


def test_a_rank_with_a_wrong_result_reports_it_and_ends_with_status_3(invoke):
    def measure(options):
        raise WrongResult("7 of 8 sums over 2 ranks are wrong")

    outcome, left = invoke(measure)
    assert outcome.exit_code == 3
    assert (json.loads(left)["verified"], json.loads(left)["metrics"]) == (False, {})
