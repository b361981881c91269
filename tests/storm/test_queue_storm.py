# SPDX-License-Identifier: Apache-2.0
"""500 GPUJobs and 20 Deployments in six namespaces, while all is killed and nodes lose power.

Two trees of cohorts, priorities, jobs that fail, are suspended, deleted, too late, stopped for
others, moved; nodes that are drained, and GPUs that fail. 16 simulated GPUs are on nodes that run
containers, 172 on nodes that kwok simulates, and more on those that a stand-in for an autoscaler
creates on request. An external watcher (queue_judge.py) checks all the time what must hold. One
storm for each seed of STORM_SEEDS; a seed gives the same jobs and the same order of kills.
"""

import os
from collections import Counter

import pytest
from chaos import EVERY_PART, POWER
from growing_pool import growing_pool
from parts import ledger_reader
from queue_storm_run import QueueStormRun, Scale
from simulated_gpus import nodes_up, shapes

SEEDS = [int(seed) for seed in os.environ.get("STORM_SEEDS", "1 2").split()]
NODES = shapes(large=12, small=38)
PARTS = (*EVERY_PART, POWER)
ROUNDS = 3


@pytest.fixture
def pool(system, fresh, tmp_path):
    with growing_pool(system, tmp_path) as pool:
        yield pool


@pytest.fixture
def ledger(system):
    with ledger_reader(system) as ledger:
        yield ledger


@pytest.fixture
def storm(cluster, kube, others, judged, ledger, pool):
    with nodes_up(cluster, NODES):
        yield QueueStormRun(cluster, kube, others, judged, ledger, NODES, pool)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm_of_the_queue_ends_as_its_specs_say_and_the_watcher_saw_nothing_wrong(
    storm, refusals, tell, seed
):
    report = storm(
        Scale(
            seed=seed,
            jobs=500,
            servers=20,
            parts=PARTS,
            rounds=ROUNDS,
            upkeep=60,
            kill_every_seconds=(2.0, 8.0),
            patience_seconds=float(os.environ.get("STORM_PATIENCE_SECONDS", "900")),
        )
    )
    tell(f"seed {seed}: {report}")
    assert refusals() == []
    assert Counter(report.killed) == dict.fromkeys(PARTS, ROUNDS)
    assert report.preemptions > 0
    assert report.nodes_that_came > 0
    assert report.moves > 0
    assert report.stopped_for_maintenance > 0
    assert sum(report.upkeep.values()) == 60
    assert report.outages > 0
