# SPDX-License-Identifier: Apache-2.0
"""The end of a command with a wrong result and figures."""

import json
import sys
import types

import pytest
from click.testing import CliRunner

from gpupack_workloads import commands
from gpupack_workloads.cli import main
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.results import Result

UNHEALTHY = Result(
    workload="burn-in",
    headline="unhealthy: memory",
    verified=False,
    simulated=False,
    metrics={"healthy": False, "wrong_words": 3},
    rows=[{"check": "max_wrong_words", "holds": False}],
)


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Return a function that runs a burn-in with given findings; it returns outcome and message."""

    def invoke(*arguments, result=UNHEALTHY):
        def run(options):
            raise WrongResult("unhealthy: memory: 3 words", result)

        commands.load("burn-in")
        module = types.SimpleNamespace(run=run)
        monkeypatch.setitem(sys.modules, "gpupack_workloads.burn_in", module)
        message = tmp_path / "message"
        environ = {"GPUPACK_RESULT_PATH": str(message)}
        outcome = CliRunner(env=environ).invoke(main, ["burn-in", *arguments])
        return outcome, json.loads(message.read_text())

    return invoke


def test_the_findings_of_a_wrong_result_are_reported(invoke):
    outcome, message = invoke()
    assert (outcome.exit_code, outcome.stdout) == (3, "unhealthy: memory\n")
    assert message["metrics"] == UNHEALTHY.metrics


def test_json_prints_all_of_it(invoke):
    outcome, message = invoke("--json")
    assert json.loads(outcome.stdout) == message | {"rows": UNHEALTHY.rows}


@pytest.mark.parametrize(
    ("gpu", "headline"), [(True, "wrong result"), (False, "wrong result (simulated)")]
)
def test_without_figures_a_result_says_that_it_is_wrong_and_whether_there_was_a_gpu(
    invoke, monkeypatch, gpu, headline
):
    cuda = types.SimpleNamespace(is_available=lambda: gpu)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    _, message = invoke(result=None)
    assert (message["headline"], message["metrics"]) == (headline, {})
    assert message["simulated"] is not gpu


def test_a_wrong_sum_is_reported_under_the_name_of_its_command(monkeypatch, tmp_path):
    def run(options):
        raise WrongResult("a sum is wrong")

    module = types.SimpleNamespace(run=run)
    monkeypatch.setitem(sys.modules, "gpupack_workloads.vector_add", module)
    message = tmp_path / "message"
    outcome = CliRunner(env={"GPUPACK_RESULT_PATH": str(message)}).invoke(main, ["vector-add"])
    assert outcome.exit_code == 3
    assert json.loads(message.read_text())["workload"] == "vector-add"


def test_without_torch_nothing_was_computed_on_a_gpu(invoke, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    _, message = invoke(result=None)
    assert message["simulated"] is True
