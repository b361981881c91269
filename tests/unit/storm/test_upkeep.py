# SPDX-License-Identifier: Apache-2.0
"""What a storm takes out of service: each kind in its turn, and nodes that jobs must leave."""

import json
import subprocess
from collections import Counter

import pytest
import upkeep
from harness import AWAY
from queue_judge import Judge, Terms
from queue_watcher import Watcher
from storm_views import Held, SeenJob, SeenPod
from upkeep import DRAIN_ALL, KINDS, Upkeep, nodes_to_stop

NODES = [f"n{number}" for number in range(20)]


class Kubectl:
    """An API server that does what it is asked, or is away."""

    def __init__(self):
        self.is_away, self.patched = False, []

    def kubectl(self, verb, _kind, name, *rest):
        if self.is_away:
            return subprocess.CompletedProcess([], 1, "", AWAY[0])
        if verb == "get":
            devices = [{"uuid": f"GPU-{name}", "health": "Healthy"}]
            return subprocess.CompletedProcess(
                [], 0, json.dumps({"status": {"devices": devices}}), ""
            )
        self.patched.append((name, json.loads(rest[-1])))
        return subprocess.CompletedProcess([], 0, "", "")

    def drained(self, drain):
        """The nodes that were drained in this way, in their order."""
        return [
            name
            for name, patch in self.patched
            for entry in patch.get("spec", {}).get("maintenance") or ()
            if entry["drain"] == drain
        ]


@pytest.fixture
def judge():
    return Judge(Terms(gpus={}))


@pytest.fixture
def kube(monkeypatch):
    monkeypatch.setattr(upkeep, "SECONDS", (0.0, 0.0))
    return Kubectl()


@pytest.fixture
def acting(judge, kube):
    return Upkeep(kube, Watcher(judge, priorities={}), NODES, times=12, seed=1)


def runs(judge, name, node, **more):
    job = SeenJob(uid=name, namespace="x", name=name, **more)
    judge.jobs[name] = job
    held = (Held(f"GPU-{name}", 100, 1),)
    judge.pods[name] = SeenPod(
        uid=name, namespace="x", name=name, node=node, job_uid=name, held=held
    )


def act_to_the_end(acting):
    for _ in range(1000):
        acting.act()
        if acting.is_over:
            return
    pytest.fail("it never ends")


def test_a_node_to_stop_has_a_job_that_runs_and_is_not_movable(judge):
    runs(judge, "job", "n3")
    runs(judge, "movable", "n4", movable=True)
    runs(judge, "ended", "n5", phase="Succeeded")
    runs(judge, "elsewhere", "real-1")
    runs(judge, "pending", "")
    judge.pods["server"] = SeenPod(uid="server", namespace="x", name="server", node="n6")
    assert nodes_to_stop(judge, NODES) == ["n3"]


def test_all_jobs_must_leave_a_node_on_which_one_runs_that_is_to_be_stopped(judge, kube, acting):
    runs(judge, "job", "n7")
    act_to_the_end(acting)
    assert kube.drained("All") == ["n7", "n7"]


def test_a_drain_of_all_jobs_is_put_off_until_one_runs(judge, kube, acting):
    while sum(acting.done.values()) < 10:
        acting.act()
    assert kube.drained("All") == []
    runs(judge, "job", "n7")
    act_to_the_end(acting)
    assert kube.drained("All") == ["n7", "n7"]


def test_upkeep_ends_though_no_job_runs(acting):
    act_to_the_end(acting)
    assert acting.done[DRAIN_ALL] == 2


def test_each_kind_is_done_as_often_as_planned_though_the_api_server_is_away(kube, acting):
    for number in range(100):
        kube.is_away = number % 2 == 0
        acting.act()
    kube.is_away = False
    act_to_the_end(acting)
    assert acting.done == Counter(KINDS + KINDS)
