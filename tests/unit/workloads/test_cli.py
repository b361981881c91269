# SPDX-License-Identifier: Apache-2.0
"""The command line around a workload; the workloads themselves need torch."""

import errno
import json
import sys
import tempfile
import types

import pytest
from click.testing import CliRunner

from gpupack_workloads import commands
from gpupack_workloads.cli import main
from gpupack_workloads.errors import (
    NoSuchDevice,
    OutOfMemory,
    WorkloadError,
    WrongResult,
    error_of_status,
)
from gpupack_workloads.results import Result

DONE = Result(workload="matmul", headline="2 TFLOP/s", verified=True, simulated=True, metrics={})


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Return a function that runs a workload by command and returns outcome and message."""

    def invoke(*arguments, answer=DONE):
        def run(*_):
            if isinstance(answer, Exception):
                raise answer
            return answer

        commands.load(arguments[0])
        module = types.SimpleNamespace(run=run)
        monkeypatch.setitem(sys.modules, f"gpupack_workloads.{arguments[0]}", module)
        message = tmp_path / "message"
        outcome = CliRunner(env={"GPUPACK_RESULT_PATH": str(message)}).invoke(main, arguments)
        return outcome, message.read_text() if message.exists() else ""

    return invoke


def test_a_workload_writes_its_result_to_the_termination_message_and_prints_its_headline(invoke):
    outcome, message = invoke("matmul")
    assert (outcome.exit_code, outcome.stdout) == (0, "2 TFLOP/s\n")
    assert json.loads(message)["headline"] == "2 TFLOP/s"


def test_json_prints_the_whole_result(invoke):
    outcome, message = invoke("allreduce", "--json")
    assert json.loads(outcome.stdout) == {**json.loads(message), "rows": []}


@pytest.mark.parametrize(
    ("error", "status"), [(OutOfMemory("m"), 4), (NoSuchDevice("d"), 5), (WorkloadError("e"), 1)]
)
def test_each_kind_of_error_has_its_exit_status_and_no_result(invoke, error, status):
    outcome, message = invoke("matmul", answer=error)
    assert (outcome.exit_code, message) == (status, "")


def test_a_wrong_result_is_reported_as_not_verified(invoke):
    outcome, message = invoke("matmul", answer=WrongResult("off by one"))
    assert outcome.exit_code == 3
    assert json.loads(message)["verified"] is False


@pytest.mark.parametrize("arguments", [("allreduce",), ("profile", "matmul")])
def test_without_a_writable_temporary_folder_a_worker_says_what_to_give_it(
    invoke, monkeypatch, caplog, arguments
):
    def gettempdir():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    # Root, who runs these tests in an image, can write into any folder.
    monkeypatch.setattr(tempfile, "gettempdir", gettempdir)
    outcome, _ = invoke(*arguments)
    assert outcome.exit_code == 2
    assert "a writable /tmp, such as an emptyDir" in outcome.stderr + caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["matmul", "--size", "0"], "0 is not in the range"),
        (["matmul", "--size", "many"], "is not a valid integer"),
        (["allreduce", "--seed", "-1"], "-1 is not in the range"),
        (["p2p", "--seed", str(2**63)], "9223372036854775808 is not in the range"),
        (["softmix"], "No such command 'softmix'"),
        (["train-cnn", "--learning-rate", "nan"], "nan is no number"),
        (["inference-load", "--rate", "nan"], "nan is no number"),
        (["inference-load", "--seconds", "NaN"], "nan is no number"),
        (["inference-server", "--drain-seconds", "nan"], "nan is no number"),
        (["tensorflow", "--memory-fraction", "nan"], "nan is no number"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, arguments)
    assert (outcome.exit_code, message in outcome.output) == (2, True)
    assert "torch" not in sys.modules


def test_an_exit_status_leads_back_to_its_error():
    class WithoutOne(WorkloadError):
        """Error after which a process ends as after any other error."""

    own = [kind for kind in WorkloadError.__subclasses__() if "exit_status" in vars(kind)]
    assert len(own) > 1
    for kind in own:
        assert type(error_of_status(kind.exit_status, "")) is kind
    assert type(error_of_status(WithoutOne.exit_status, "")) is WorkloadError
    assert type(error_of_status(-9, "killed")) is WorkloadError
