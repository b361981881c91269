# SPDX-License-Identifier: Apache-2.0
"""The storm of `make test-queue-storm`, small: our parts and the kubelet are killed once."""

import pytest
from chaos import PARTS
from growing_pool import growing_pool
from parts import ledger_reader
from queue_storm_run import QueueStormRun, Scale
from simulated_gpus import nodes_up, shapes

SEED = 20261122
NODES = shapes(large=4, small=6)


@pytest.fixture
def pool(system, idle, tmp_path):
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


@pytest.mark.slow
def test_a_short_storm_of_the_queue_ends_as_its_specs_say(storm, refusals, tell):
    report = storm(
        Scale(
            seed=SEED,
            jobs=60,
            servers=6,
            parts=PARTS,
            rounds=1,
            upkeep=12,
            kill_every_seconds=(1.0, 4.0),
            patience_seconds=300,
        )
    )
    tell(f"{report}")
    assert refusals() == []
    assert len(report.killed) == len(PARTS)
    # Whether any job is preempted in such a short time depends on chance.
    assert report.preemptions + report.shrinks > 0
    assert report.nodes_that_came > 0
    assert sum(report.upkeep.values()) == 12
