# SPDX-License-Identifier: Apache-2.0
from math import inf
from pathlib import Path

import pytest

from gpupack_placement import POLICIES, Cluster, DeviceUuid, NodeName, Share, Spread, plan_gang
from gpupack_queue import ANY, Limit, OrderPolicy
from gpupack_simulator import DISCIPLINES, Breakdown, Component, FailureRates, InvalidInput
from gpupack_simulator.inputs.scenario import read_jobs, read_scenario

CLASSROOM = Path(__file__).parents[4] / "examples/simulator/classroom.yaml"


def scenario(tmp_path, text, read=read_scenario):
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    return read(path)


def broken(tmp_path, text, read=read_scenario):
    with pytest.raises(InvalidInput) as caught:
        scenario(tmp_path, text, read)
    return str(caught.value)


GOOD = """\
until: 50
nodes:
  - {name: a, gpus: 4, gpuMemory: 24, cliqueSize: 2, cpu: 8, memory: 64, count: 2}
  - {name: b, gpus: 1, model: T4}
jobs:
  - {name: gang, gpus: 2, workers: 2, duration: 5, spread: {maxNodes: 1}, interconnect: nvlink}
  - {name: share, arrival: 2.5, share: {percent: 12.5, memory: 4}, gpuModels: [T4], priority: 3}
failures:
  - {node: a-0, gpu: 1, at: 3, until: 6}
  - {node: b, at: 9}
failureRates: {gpuBetween: 500}
"""


def test_nodes_are_made_as_often_as_they_are_counted(tmp_path):
    nodes = scenario(tmp_path, GOOD).nodes
    assert [node.name for node in nodes] == ["a-0", "a-1", "b"]
    assert [device.clique for device in nodes[0].devices] == [0, 0, 1, 1]
    assert (nodes[0].cpu, nodes[0].memory, nodes[0].devices[0].memory) == (8000, 65_536, 24_576)


def test_requests_of_jobs_are_in_core_units(tmp_path):
    gang, share = scenario(tmp_path, GOOD).jobs
    assert (gang.workers, gang.duration, gang.spread) == (2, 5, Spread(max_nodes=1))
    assert share.request.share == Share(125, 4096)
    assert (share.arrival, share.duration, share.priority) == (2.5, inf, 3)


def test_workers_go_where_the_resources_are_that_they_name(tmp_path):
    text = """\
until: 50
nodes:
  - {name: a, gpus: 4}
  - {name: b, gpus: 4, resources: {rdma/hca: 2}}
jobs:
  - {name: gang, gpus: 1, workers: 2, duration: 5, resources: {rdma/hca: 1}}
"""
    found = scenario(tmp_path, text)
    assert [dict(node.extended) for node in found.nodes] == [{}, {"rdma/hca": 2}]
    plan = plan_gang(Cluster(found.nodes), found.jobs[0].gang, POLICIES["best-fit"])
    assert [placement.node for placement in plan] == ["b", "b"]


def test_failures_name_parts_of_the_nodes(tmp_path):
    found = scenario(tmp_path, GOOD)
    assert found.breakdowns == (
        Breakdown(Component(NodeName("a-0"), DeviceUuid("a-0-gpu-1")), 3, 6),
        Breakdown(Component(NodeName("b")), 9),
    )
    assert found.rates == FailureRates(gpu_between=500)


def test_the_classroom_has_fourteen_gpus_and_four_jobs():
    found = read_scenario(CLASSROOM)
    memory = [[device.memory // 1024 for device in node.devices] for node in found.nodes]
    assert memory == [[24] * 4, [48] * 2, [16] * 8]
    asked = [(j.request.gpus, j.request.min_memory // 1024, j.duration) for j in found.jobs]
    assert asked == [(2, 16, 5), (1, 24, 3), (4, 12, 8), (2, 32, 4)]


FINE_NODES = "nodes: [{name: a, gpus: 4}]\n"
BROKEN = {
    FINE_NODES + "jobs:\n" + "- {name: j, gpus: 1, count: 100000}\n" * 51: (
        "scenario.yaml:3: jobs: these are 5,100,000 jobs; the most are 5,000,000"
    ),
    "nodes:\n- {name: a, gpus: 1024, count: 100000}": (
        "scenario.yaml:2: nodes: these have 102,400,000 GPUs; the most are 1,000,000"
    ),
    "nodes: " + "[" * 3000: "scenario.yaml: is nested too deeply",
    "": "scenario.yaml: is empty",
    "nodes: 2026-13-45": "scenario.yaml: is not YAML: month must be in 1..12",
    "nodes: [": "scenario.yaml:1: is not YAML: expected the node content",
    "- just a list": "scenario.yaml:1: expected named fields, got list",
    "jobs: [{name: j, gpus: 1}]": "scenario.yaml:1: nodes: a scenario needs at least one node",
    FINE_NODES: "scenario.yaml:1: jobs: a scenario needs at least one job",
    FINE_NODES + "jobs: 5": "scenario.yaml:2: jobs: expected a list, got int",
    FINE_NODES + "jobs:\n  - {name: j, gpus: two}": (
        "scenario.yaml:3: jobs[0].gpus: Expected `int | null`, got `str`"
    ),
    FINE_NODES
    + "jobs:\n  - {gpus: 1}": "scenario.yaml:3: jobs[0]: Object missing required field `name`",
    FINE_NODES + "jobs:\n  - {name: j, gpus: 1, gpuss: 2}": (
        "scenario.yaml:3: jobs[0]: Object contains unknown field `gpuss`"
    ),
    FINE_NODES + "jobs:\n  - {name: j}": "jobs[0]: ask for exactly one of gpus",
    FINE_NODES + "jobs:\n  - {name: j, gpus: 1, share: {percent: 5}}": (
        "jobs[0]: ask for exactly one of gpus"
    ),
    FINE_NODES + "jobs:\n  - name: j\n    share: {percent: 100}": (
        "scenario.yaml:4: jobs[0].share.percent: Expected `float` < 100.0"
    ),
    FINE_NODES + "jobs:\n  - {name: j, gpus: 1}\n  - {name: j, gpus: 1}": (
        "scenario.yaml:4: jobs[1].name: there is a job j above"
    ),
    FINE_NODES + "jobs:\n  - {name: j, gpus: 1, duration: 0}": (
        "scenario.yaml:3: jobs[0].duration: Expected `float` > 0.0"
    ),
    FINE_NODES
    + "jobs:\n  - {name: j, gpus: 1, arrival: .nan}": "jobs[0].arrival: Expected `float` >= 0.0",
    FINE_NODES + "jobs: [{name: j, gpus: 1, gpus: 2}]": "jobs[0].gpus: stands here twice",
    FINE_NODES + "discipline: lifo": "scenario.yaml:2: discipline: there is no discipline 'lifo'",
    FINE_NODES + "until: -1": "scenario.yaml:2: until: Expected `float` > 0.0",
    FINE_NODES + "timeUnit: hours": "scenario.yaml:2: timeUnit: Invalid enum value 'hours'",
    FINE_NODES + "failures: [{node: b, at: 1}]": "failures[0].node: there is no node b",
    FINE_NODES + "failures: [{node: a, gpu: 4, at: 1}]": "a has GPUs 0 to 3, not 4",
    FINE_NODES + "failures: [{node: a, at: 4, until: 3}]": (
        "failures[0]: a fails at 4 and is repaired at 3"
    ),
    FINE_NODES + "failureRates: {gpuBetween: 9}": (
        "scenario.yaml:2: failureRates: rates need a time at which the run ends: until"
    ),
    "nodes: [{name: a, gpus: 1}, {name: a, gpus: 1}]": "nodes[1].name: there is a node a above",
    FINE_NODES
    + "jobs:\n  - {name: j, gpus: 1, workers: 3, spread: {maxNodes: 2, oneWorkerPerNode: true}}": (
        "jobs[0]: 3 workers on different nodes need max_nodes of at least 3"
    ),
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_scenario_is_reported_by_line_and_field(tmp_path, text):
    assert BROKEN[text] in broken(tmp_path, text)


def test_every_invalid_job_is_reported(tmp_path):
    text = FINE_NODES + "jobs:\n  - {name: a}\n  - {name: b, gpus: 1}\n  - {name: c, gpus: -1}\n"
    message = broken(tmp_path, text)
    assert "scenario.yaml:3: jobs[0]" in message
    assert "scenario.yaml:5: jobs[2].gpus" in message


def test_a_file_of_jobs_needs_only_jobs(tmp_path):
    assert len(scenario(tmp_path, "jobs: [{name: j, gpus: 1}]", read_jobs)) == 1
    assert "nodes: only jobs are expected here" in broken(tmp_path, FINE_NODES, read_jobs)
    assert "jobs: there are none" in broken(tmp_path, "jobs: []", read_jobs)


TENANTS = f"""{GOOD}\
discipline: fair-share
queue: {{halfLife: 60, fifo: strict, preemption: {{minRuntime: 5, grace: 3, fairShare: false}}}}
cohorts:
  - {{name: lab, gpus: {{T4: 4}}, fifo: best-effort, minRuntime: 9}}
quotas:
  - {{tenant: a, cohort: lab, weight: 2, gpus: {{T4: {{nominal: 2, lendingLimit: 0.5}}, "*": 1}}}}
"""


def test_quotas_are_in_core_s_units(tmp_path):
    found = scenario(tmp_path, TENANTS)
    (quota,), (cohort,) = found.quotas.quotas, found.quotas.cohorts
    assert (quota.tenant, quota.cohort, quota.weight) == ("a", "lab", 2)
    assert quota.limits == {"T4": Limit(2000, lending=500), ANY: Limit(1000)}
    assert cohort.limits == {"T4": Limit(4000)}
    assert (cohort.order, cohort.min_runtime_seconds) == (OrderPolicy.BEST_EFFORT, 9)


def test_rules_that_a_scenario_leaves_out_are_those_of_the_discipline(tmp_path):
    rules = scenario(tmp_path, TENANTS).rules().rules
    default = DISCIPLINES["fair-share"].rules
    assert (rules.half_life_seconds, rules.order, rules.preemption.fair_share) == (
        60,
        OrderPolicy.STRICT,
        False,
    )
    assert (rules.max_reservations, rules.preemption.reclaim) == (
        default.max_reservations,
        default.preemption.reclaim,
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("quotas: [{tenant: a}, {tenant: a}]", "quotas[1].tenant: there is an entry of a"),
        ("cohorts: [{name: a, parent: b}, {name: b, parent: a}]", "above itself: a < b < a"),
        ("quotas: [{tenant: a, gpus: {T4: {nominal: -1}}}]", "quotas[0].gpus"),
        ("queue: {preemption: {minRuntime: -1}}", "queue.preemption.minRuntime"),
    ],
)
def test_quotas_that_cannot_be_are_faults_of_the_file(tmp_path, wrong, message):
    assert message in broken(tmp_path, f"{GOOD}{wrong}\n")
