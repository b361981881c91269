# SPDX-License-Identifier: Apache-2.0
"""Jobs of a scenario whose models are in order of preference."""

import pytest
from simulator_builders import run, starts

from gpupack_simulator import InvalidInput
from gpupack_simulator.inputs.scenario import read_scenario

SCENARIO = """\
timeUnit: s
nodes:
  - {name: hop, gpus: 1, model: H100}
  - {name: amp, gpus: 1, model: A100}
jobs:
  - {name: holder, gpus: 1, gpuModels: [H100], duration: 1000}
"""


def scenario(tmp_path, *jobs):
    path = tmp_path / "scenario.yaml"
    lines = (f"  - {{gpus: 1, duration: 10, arrival: 5, {job}}}\n" for job in jobs)
    path.write_text(SCENARIO + "".join(lines))
    return read_scenario(path)


def starts_of(tmp_path, *jobs, discipline="backfill"):
    found = scenario(tmp_path, *jobs)
    return starts(run(found.nodes, found.jobs, discipline=discipline))


@pytest.mark.parametrize("discipline", ["fifo", "backfill", "priority", "fair-share"])
@pytest.mark.parametrize(
    ("fallback", "start"),
    [("", 5), ("gpuModelFallback: {after: 300}", 305), ("gpuModelFallback: {after: 3000}", 1000)],
)
def test_a_job_takes_the_second_model_after_its_time(tmp_path, discipline, fallback, start):
    job = f"name: j, gpuModels: [H100, A100], {fallback}".rstrip(", ")
    assert starts_of(tmp_path, job, discipline=discipline)["j"] == start


def test_a_model_without_nodes_costs_no_time(tmp_path):
    job = "name: j, gpuModels: [H300, A100], gpuModelFallback: {after: 300}"
    assert starts_of(tmp_path, job)["j"] == 5


def test_a_job_that_waits_for_a_model_holds_no_other_models_back(tmp_path):
    found = starts_of(
        tmp_path,
        "name: j, gpuModels: [H100, A100], gpuModelFallback: {after: 300}",
        "name: next, gpuModels: [A100]",
        discipline="fifo",
    )
    assert found["next"] == 5


def test_a_fallback_without_a_positive_time_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="after"):
        scenario(tmp_path, "name: j, gpuModels: [H100, A100], gpuModelFallback: {after: 0}")
