# SPDX-License-Identifier: Apache-2.0
"""Movable jobs move so that a job which needs a whole node has one (values-devcluster.yaml)."""

import pytest
from harness import wait_for
from manifests import on_node

pytestmark = [pytest.mark.alone, pytest.mark.slow]


@pytest.fixture
def fragmented(idle, kube, cluster, judged):
    """Two nodes, each half full with a movable job.

    Each was submitted when only its node was free: the choice between two free nodes depends on
    earlier jobs of the cluster.
    """
    first, second = cluster.nodes()
    for name, gpus, node in (("half", 4, first), ("other", 8, second)):
        kube.submit(on_node(judged.job(name, gpus=gpus, seconds=600), node))
        kube.wait_phase(name, "Running")
    for name, filler in (("one", "other"), ("two", "half")):
        job = judged.job(name, gpus=4, seconds=600, movable=True)
        job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 5
        kube.submit(job)
        kube.wait_phase(name, "Running")
        kube.delete("gpujob", filler)
    assert kube.gpujob("one")["status"]["nodes"] == first
    assert kube.gpujob("two")["status"]["nodes"] == second


def recorded_preemption(kube, name="whole"):
    return kube.gpujob(name).get("status", {}).get("preemption")


def all_run(kube):
    jobs = {name: kube.gpujob(name)["status"] for name in ("one", "two", "whole")}
    return jobs if all(job["phase"] == "Running" for job in jobs.values()) else None


def moves(jobs):
    return [name for name, job in jobs.items() if job.get("moves")]


def test_one_of_two_half_full_nodes_is_emptied_for_a_job_that_needs_a_whole_node(
    fragmented, kube, judged
):
    kube.submit(judged.job("whole", gpus=8, seconds=600))
    written = wait_for(lambda: recorded_preemption(kube), seconds=60, what="the moves are recorded")
    (victims,) = written["victims"]
    assert victims["reason"] == "Consolidation"
    assert 0 < written["lostGpuSeconds"] <= written["gainedGpuSeconds"]
    jobs = wait_for(lambda: all_run(kube), seconds=60, what="all three run")
    (moved,) = moves(jobs)
    first, second = jobs[moved]["attempts"]
    assert (first["outcome"], first["reason"]) == ("Moved", "Consolidation")
    assert first["message"].endswith("to free GPUs for whole there")
    assert "outcome" not in second
    assert (jobs[moved].get("restarts", 0), jobs[moved]["moves"]) == (0, 1)
    assert jobs[moved]["nodes"] != jobs["whole"]["nodes"]
    assert "Moved" in kube.events(moved)
    assert "Consolidating" in kube.events("whole")
    assert "preemption" not in jobs["whole"]


def test_a_scheduler_that_is_killed_before_the_moves_makes_no_useless_move(
    fragmented, kube, system, judged, refusals
):
    kube.submit(judged.job("whole", gpus=8, seconds=600))
    wait_for(lambda: recorded_preemption(kube), seconds=60, what="the moves are recorded")
    selector = "--selector=app.kubernetes.io/component=scheduler"
    system.insist("delete", "pods", selector, "--wait=false", "--grace-period=0", "--force")
    jobs = wait_for(lambda: all_run(kube), seconds=120, what="all three run")
    (moved,) = moves(jobs)
    assert [each.get("outcome") for each in jobs[moved]["attempts"]] == ["Moved", None]
    assert jobs[moved]["nodes"] != jobs["whole"]["nodes"]
    assert refusals() == []
