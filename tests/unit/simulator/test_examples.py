# SPDX-License-Identifier: Apache-2.0
"""The output of the examples. GPUPACK_WRITE_GOLDEN=1 writes the expected output."""

import os
import runpy
from pathlib import Path

import pytest
from alike import assert_alike
from click.testing import CliRunner

from gpupack_placement import POLICIES
from gpupack_simulator.cli import main
from gpupack_simulator.experiments import Scripted
from gpupack_simulator.inputs.scenario import read_scenario
from gpupack_simulator.output.figures import figures
from gpupack_terminal.screens import Size

EXAMPLES = Path(__file__).parents[3] / "examples/simulator"
GOLDEN = Path(__file__).parent / "golden"
CLASSROOMS = [path.stem.removeprefix("classroom-") for path in GOLDEN.glob("classroom-*.txt")]
WRITE = bool(os.environ.get("GPUPACK_WRITE_GOLDEN"))


def compare(name, text):
    path = GOLDEN / f"{name}.txt"
    if WRITE:
        path.write_text(text)
    assert path.exists(), "a new example: look at what it prints, then write it"
    assert_alike(text, path.read_text())


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example_prints_what_it_always_printed(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    compare(name, capsys.readouterr().out)


@pytest.mark.parametrize("policy", sorted(POLICIES if WRITE else CLASSROOMS))
def test_the_classroom_goes_as_it_always_went(policy, monkeypatch):
    monkeypatch.setattr("gpupack_terminal.screens.size_of", lambda _stream: Size(100))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    arguments = ["step", str(EXAMPLES / "classroom.yaml"), "--policies", policy, "--steps", "10"]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    compare(f"classroom-{policy}", result.output)


@pytest.mark.parametrize("seed", range(3))
def test_no_job_waits_in_the_classroom_under_the_default_policy(seed):
    classroom = Scripted(read_scenario(EXAMPLES / "classroom.yaml"))
    assert figures(classroom.run("default", seed)).wait_mean == 0
