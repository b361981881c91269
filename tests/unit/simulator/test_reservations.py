# SPDX-License-Identifier: Apache-2.0
"""Time-window reservations in a scenario."""

import pytest

from gpupack_simulator.errors import InvalidInput
from gpupack_simulator.experiments import Scripted
from gpupack_simulator.inputs.scenario import read_scenario

LAB = """
timeUnit: s
discipline: {discipline}
nodes:
  - {{name: n1, gpus: 4, model: H100}}
quotas:
  - {{tenant: lab, gpus: {{H100: 4}}}}
reservations:
  - {reservation}
queue: {{preemption: {{grace: 10}}}}
jobs:
  - {{name: batch, tenant: web, gpus: 4, duration: 500}}
  - {{name: course, tenant: lab, gpus: 2, arrival: 100, duration: 50, reservation: day}}
"""
DAY = "{name: day, tenant: lab, model: H100, gpus: 4, from: 100, to: 200, every: 1000, times: 2}"


@pytest.fixture
def scenario(tmp_path):
    def write(reservation=DAY, discipline="backfill"):
        path = tmp_path / "lab.yaml"
        path.write_text(LAB.format(reservation=reservation, discipline=discipline))
        return read_scenario(path)

    return write


@pytest.mark.parametrize("discipline", ["backfill", "fifo", "fair-share"])
def test_a_job_ends_for_the_window_and_the_job_of_the_reservation_starts_on_time(
    scenario, discipline
):
    run = Scripted(scenario(discipline=discipline)).run("best-fit", 0)
    ended = {str(each.job.id): each for each in run.jobs}
    assert ended["course"].wait == 0
    assert ended["batch"].preemptions == 1
    assert ended["batch"].ended == 700


def test_a_reservation_is_repeated(scenario):
    windows = scenario().windows
    assert [(each.start, each.end) for each in windows] == [(100, 200), (1100, 1200)]


@pytest.mark.parametrize(
    ("reservation", "message"),
    [
        (DAY.replace("gpus: 4", "gpus: 5"), "more than its tenant's nominal 4 GPUs at 100"),
        (DAY.replace("to: 200", "to: 50"), "not after its start"),
        (DAY.replace("every: 1000", "every: 50"), "before it has ended"),
        (DAY.replace(", times: 2", ""), "both or neither"),
        (DAY.replace("gpus: 4", "nodes: 1"), "give either gpus, or nodes and gpusPerNode"),
        (DAY.replace("tenant: lab", "tenant: web"), "more than its tenant's nominal 0 GPUs"),
    ],
)
def test_a_reservation_that_makes_no_sense_is_refused(scenario, reservation, message):
    with pytest.raises(InvalidInput, match=message):
        scenario(reservation)
