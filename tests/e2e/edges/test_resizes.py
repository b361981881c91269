# SPDX-License-Identifier: Apache-2.0
"""Failures of components and of extra workers while an elastic gang grows or shrinks."""

import time

import pytest
from elastic_gangs import (
    GANG,
    OTHER,
    gang,
    kept,
    other,
    require_one_attempt,
    running,
    wait_width,
    width,
)
from harness import placed, wait_for
from node_faults import powered_off
from parts import leader

GROW_SECONDS = 180
"""Time for which a new scheduler leader waits for its predecessor's calls in progress."""


@pytest.fixture
def node(system, cluster):
    """A node on which nothing starts before the test allows it."""
    lost = cluster.nodes()[0]
    system.kubectl("cordon", lost)
    yield lost
    system.kubectl("uncordon", lost)


def kill(system, part):
    """Delete the leading pod of a component without a grace period."""
    if found := leader(system, part):
        system.kubectl("delete", "pod", found["metadata"]["name"], "--force", "--grace-period=0")


@pytest.mark.parametrize("part", ["operator", "scheduler"])
def test_a_gang_whose_growth_and_shrinking_are_cut_off_has_each_worker_once(
    kube, system, judged, refusals, part
):
    kube.submit(other(judged))
    kube.wait_phase(OTHER, "Running")
    kube.submit(gang(judged))
    wait_width(kube, 2)
    kube.delete("gpujob", OTHER)
    wait_for(
        lambda: width(kube) > 2 or None, seconds=GROW_SECONDS, what="it grows", every_seconds=0.05
    )
    kill(system, part)
    wait_width(kube, 4, seconds=GROW_SECONDS)
    kube.submit(other(judged))
    wait_for(
        lambda: kube.gpujob(OTHER).get("status", {}).get("preemption") or width(kube) < 4 or None,
        seconds=GROW_SECONDS,
        what="it shrinks",
        every_seconds=0.05,
    )
    kill(system, part)
    kube.wait_phase(OTHER, "Running", seconds=GROW_SECONDS)
    wait_width(kube, 2)
    require_one_attempt(kube)
    assert refusals() == []


def test_a_gang_continues_when_the_node_of_its_extra_workers_dies_and_grows_again_later(
    kube, cluster, judged, node, refusals, tell
):
    kube.submit(gang(judged))
    wait_width(kube, 2)
    kube.kubectl("uncordon", node)
    job = wait_width(kube, 4)
    there = {worker.worker for worker in placed(job) if worker.node == node}
    assert there == {2, 3}
    with powered_off(cluster, node):
        cut = time.monotonic()
        wait_for(lambda: width(kube) == 2, seconds=GROW_SECONDS, what="their places are given back")
        gone = time.monotonic() - cut
        require_one_attempt(kube)
        assert running(kube)[:2] == [0, 1]
    wait_width(kube, 4, seconds=GROW_SECONDS)
    require_one_attempt(kube)
    assert refusals() == []
    tell(f"places on the dead node are given back after {gone:.1f} s")


def test_a_failed_extra_worker_releases_its_gpus_and_the_gang_continues(kube, judged):
    kube.submit(gang(judged))
    wait_width(kube, 4)
    victim = next(pod for pod in kube.pods(GANG) if "-x3-" in pod["metadata"]["name"])
    kube.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
    wait_for(lambda: width(kube) == 3, seconds=60, what="its place is given back")
    require_one_attempt(kube)
    wait_width(kube, 4)
    assert sorted(kept(kube)) == [0, 1, 2, 3]
