# SPDX-License-Identifier: Apache-2.0
import json
import sys
import types
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gpupack_workloads import commands
from gpupack_workloads.cli import main
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.results import Result
from gpupack_workloads.tensorflow.options import TensorFlowOptions

EXAMPLES = Path(__file__).parents[4] / "examples"
RESULT = Result(workload="tensorflow", headline="h", verified=True, simulated=True, metrics={})


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Return a function that runs the command with a training and returns outcome and message."""

    def invoke(train, *arguments, **environ):
        module = types.SimpleNamespace(run_supervised=train)
        monkeypatch.setitem(sys.modules, "gpupack_workloads.tensorflow.supervised", module)
        message = tmp_path / "message"
        runner = CliRunner(env={"GPUPACK_RESULT_PATH": str(message)} | environ)
        outcome = runner.invoke(main, ["tensorflow", *arguments])
        return outcome, message.read_text() if message.exists() else ""

    return invoke


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "imagenet"], "'imagenet' is not one of"),
        (["--images", "0"], "0 is not in the range"),
        (["--images", "1000001"], "1000001 is not in the range"),
        (["--epochs", "0"], "0 is not in the range"),
        (["--batch-size", "65537"], "65537 is not in the range"),
        (["--memory-fraction", "0"], "0.0 is not in the range"),
        (["--memory-fraction", "1.5"], "1.5 is not in the range"),
        (["--strategy", "mirrored"], "No such option"),
    ],
)
def test_bad_arguments_end_with_status_2_before_tensorflow_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, ["tensorflow", *arguments])
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert "tensorflow" not in sys.modules


def test_an_invalid_environment_of_the_container_ends_with_status_2(invoke):
    outcome, left = invoke(lambda *_: RESULT, GPUPACK_WORKERS="two")
    assert (outcome.exit_code, left) == (2, "")


def test_arguments_reach_the_training_and_its_result_the_pods_message(invoke):
    asked = []

    def train(options, setup):
        asked.append((options, setup.memory_limit_mib))
        return RESULT

    outcome, left = invoke(
        train, "--shape=cifar10", "--images=64", "--epochs=3", "--batch-size=8", "--seed=5",
        "--no-memory-growth", "--memory-fraction=0.5", "--require-gpu",
        GPUPACK_DEVICES="GPU-a", GPUPACK_DEVICE_MEMORY_MIB="1000",
    )  # fmt: skip
    assert (outcome.exit_code, outcome.stdout) == (0, "h\n"), outcome.output
    assert json.loads(left)["workload"] == "tensorflow"
    options = TensorFlowOptions(
        shape="cifar10", images=64, epochs=3, batch_size=8, seed=5,
        memory_growth=False, memory_fraction=0.5, require_gpu=True,
    )  # fmt: skip
    assert asked == [(options, 500)]


def test_a_training_that_is_wrong_reports_its_figures_and_ends_with_status_3(invoke):
    wrong = Result(
        workload="tensorflow", headline="w", verified=False, simulated=True, metrics={"loss": 9.0}
    )

    def train(*_):
        raise WrongResult("the loss is 9", wrong)

    outcome, left = invoke(train)
    assert (outcome.exit_code, json.loads(left)["metrics"]) == (3, {"loss": 9.0})


def test_it_is_a_command_and_no_workload_that_a_gpujob_can_name():
    assert "tensorflow" not in commands.names()
    assert "tensorflow" in main.list_commands(None)


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-gang"])
def test_the_examples_arguments_are_the_commands(name):
    manifest = next(yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text()))
    (worker,) = manifest["spec"]["template"]["spec"]["containers"]
    command, *arguments = worker["args"]
    assert (manifest["metadata"]["name"], command) == (name, "tensorflow")
    assert worker["image"] == "docker.io/gpupack/tensorflow:dev"
    commands.load(command).make_context(command, arguments)
