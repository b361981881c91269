# SPDX-License-Identifier: Apache-2.0
"""The command `cost`, run through the CLI."""

import csv
import subprocess
import sys

import pytest
from click.testing import CliRunner

from gpupack_simulator.cli import main

DAY = """
timeUnit: s
until: 86400
discipline: fifo-skip
nodes:
  - {name: node1, gpus: 4, gpuMemory: 80, model: A100}
  - {name: node2, gpus: 4, gpuMemory: 40, model: A100}
jobs:
  - {name: whole, gpus: 4, duration: 7200, tenant: red, minGpuMemory: 80}
  - {name: share, share: {percent: 10, memory: 20}, duration: 3600, tenant: blue}
  - {name: endless, gpus: 1, tenant: blue, arrival: 43200}
"""


@pytest.fixture
def cost(tmp_path, monkeypatch):
    """Runs the command in a folder of its own."""
    (tmp_path / "day.yaml").write_text(DAY)
    (tmp_path / "prices.yaml").write_text('{currency: EUR, prices: {A100-80GB: 2, "*": 1}}')

    def run(*arguments, prices="prices.yaml", scenario="day.yaml"):
        monkeypatch.chdir(tmp_path)
        return CliRunner().invoke(main, ["cost", scenario, "--prices", prices, *arguments])

    return run


def test_the_cost_command_runs_as_a_process(cost, tmp_path):
    command = [sys.executable, "-P", "-m", "gpupack_simulator", "cost", "day.yaml"]
    done = subprocess.run(
        [*command, "--prices", "prices.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "28.50" in done.stdout) == (0, True), done.stderr


def test_the_cost_of_each_tenant_is_shown(cost, tmp_path):
    done = cost("--csv", "out/lines.csv")
    assert done.exit_code == 0, done.stderr
    assert "cost EUR" in done.stdout
    with (tmp_path / "out" / "lines.csv").open() as file:
        rows = {row["namespace"]: row for row in csv.DictReader(file)}
    assert float(rows["red"]["allocated_gpu_hours"]) == 8.0
    assert float(rows["red"]["cost"]) == 16.0
    assert float(rows["blue"]["allocated_gpu_hours"]) == pytest.approx(0.5 + 12.0)
    assert float(rows["blue"]["cost"]) == pytest.approx(0.5 + 12.0)


@pytest.mark.parametrize("by", ["job", "model"])
def test_cost_is_shown_by_job_or_model(cost, by):
    done = cost("--by", by)
    assert done.exit_code == 0, done.stderr
    assert ("endless" if by == "job" else "A100 (80 GiB)") in done.stdout


def test_prices_are_read_from_the_charts_values(cost, tmp_path):
    (tmp_path / "values.yaml").write_text("cost: {enabled: true, currency: USD, prices: {A100: 1}}")
    assert "cost USD" in cost(prices="values.yaml").stdout


def test_the_error_for_an_invalid_price_names_its_line(cost, tmp_path):
    (tmp_path / "wrong.yaml").write_text("currency: EUR\nprices:\n  2 x A100: 1\n")
    done = cost(prices="wrong.yaml")
    assert done.exit_code == 1
    assert "wrong.yaml" in done.stderr
    assert "is a model with a count" in done.stderr
    assert "Traceback" not in done.stderr


def test_steps_have_no_price(cost, tmp_path):
    (tmp_path / "steps.yaml").write_text(DAY.replace("timeUnit: s", "timeUnit: step"))
    done = cost(scenario="steps.yaml")
    assert done.exit_code == 1
    assert "write timeUnit: s" in done.stderr
