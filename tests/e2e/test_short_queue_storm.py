# SPDX-License-Identifier: Apache-2.0
"""The storm of `make test-queue-storm`, small: our parts and the kubelet are killed once."""

import pytest
from chaos import PARTS
from parts import ledger_reader
from queue_storm_run import QueueStormRun, Scale
from simulated_gpus import nodes_up, shapes

SEED = 20261122
NODES = shapes(large=4, small=6)


@pytest.fixture
def storm(cluster, system, kube, others, judged, idle):
    with nodes_up(cluster, NODES), ledger_reader(system) as ledger:
        yield QueueStormRun(cluster, kube, others, judged, ledger, NODES)


@pytest.mark.slow
def test_a_short_storm_of_the_queue_ends_as_its_specs_say(storm, refusals, tell):
    report = storm(
        Scale(
            seed=SEED,
            jobs=60,
            servers=6,
            parts=PARTS,
            rounds=1,
            kill_every_seconds=(1.0, 4.0),
            patience_seconds=300,
        )
    )
    tell(f"{report}")
    assert refusals() == []
    assert len(report.killed) == len(PARTS)
    assert report.preemptions > 0
