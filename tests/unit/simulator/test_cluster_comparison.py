# SPDX-License-Identifier: Apache-2.0
"""The command what-if about a node less, or GPUs more."""

import json

import pytest
from click.testing import CliRunner

from gpupack_simulator.cli import main

SCENARIO = """
timeUnit: s
nodes: [{name: a, count: 2, gpus: 4, model: A100}]
jobs:
  - {name: moves, gpus: 2, duration: 1000, movable: true, checkpoint: 60, restart: 10}
  - {name: rigid, gpus: 4, duration: 1000}
  - {name: late, gpus: 4, arrival: 10, duration: 100}
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(SCENARIO)
    return path


def said(*arguments, fails=False):
    given = ["what-if", *map(str, arguments), "--policy", "first-fit"]
    result = CliRunner().invoke(main, given)
    assert (result.exit_code != 0) is fails, result.output
    return result.output


def figures(scenario, *arguments):
    out = scenario.with_suffix(".json")
    said(scenario, *arguments, "-q", "--json", out)
    return json.loads(out.read_text())


def test_a_drain_report_names_stopped_jobs_lost_work_and_longer_waits(scenario):
    sides = [figures(scenario, "--drain", f"a-{n}@125") for n in (0, 1)]
    for found in sides:
        assert found["today"]["stopped_for_maintenance"] == []
        assert found["changed"]["lost_gpu_hours"] > found["today"]["lost_gpu_hours"] == 0
        assert found["wait_longer_seconds"]
    assert sorted(s for found in sides for s in found["changed"]["stopped_for_maintenance"]) == [
        "moves",
        "rigid",
    ]


def test_a_report_on_more_gpus_names_shorter_waits(scenario):
    found = figures(scenario, "--more", "6 x A100")
    assert (found["today"]["nodes"], found["changed"]["nodes"]) == (2, 4)
    assert found["wait_longer_seconds"] == {}
    assert found["changed"]["figures"]["wait_mean_seconds"]["4-7"] == 0
    output = " ".join(said(scenario, "--more", "8 x A100").split())
    assert "1 wait shorter" in output


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((), "give one of --quotas, --drain and --more"),
        (("--drain", "a-0@1", "--more", "1 x A100"), "give one of"),
        (("--drain", "a-0"), "write NODE@TIME"),
        (("--drain", "a-0@soon"), "write NODE@TIME"),
        (("--drain", "a-0@nan"), "write NODE@TIME"),
        (("--drain", "a-0@-1"), "write NODE@TIME"),
        (("--drain", "b@1"), "there is no node b"),
        (("--more", "A100"), "write NUMBER x MODEL"),
        (("--more", "0 x A100"), "write NUMBER x MODEL"),
        (("--more", "8 x B200"), "there are: A100"),
        (("--more", "9999999 x A100"), "the most are 1,000,000 GPUs"),
        (("--more", "1 x A100", "--out", "folder"), "--out is of --quotas"),
    ],
)
def test_an_invalid_what_if_is_a_one_line_error(scenario, asked, message):
    output = said(scenario, *asked, fails=True)
    assert message in output
    assert len(output.splitlines()) == 1


def test_without_a_scenario_there_is_no_cluster_to_change():
    assert "need a SCENARIO" in said("--more", "1 x A100", fails=True)
