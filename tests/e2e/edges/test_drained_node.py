# SPDX-License-Identifier: Apache-2.0
"""A node of 8 GPUs, all of them held, is drained while workloads run on it."""

import datetime as dt
import json
import time

import pytest
from harness import is_ready, wait_for
from manifests import Share, on_node

STOP_AFTER_SECONDS = 20
HALF = Share(percent=50, memory_mib=8192)


@pytest.fixture
def nodes(cluster, system):
    """Yield the node that is drained and the other one; end all maintenance afterwards."""
    first, second, *_ = cluster.nodes()
    yield first, second
    for node in (first, second):
        maintain(system, node)


def maintain(kube, node, **entry):
    patch = json.dumps({"spec": {"maintenance": [entry] if entry else None}})
    done = kube.kubectl("patch", "gpunode", node, "--type=merge", f"--patch={patch}")
    assert done.returncode == 0, done.stderr


def budget(app, *, available):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app},
        "spec": {"minAvailable": available, "selector": {"matchLabels": {"app": app}}},
    }


class Timeline:
    """The time at which each state was first seen, in seconds since the drain began."""

    def __init__(self):
        self.began = time.time()
        self.at: dict[str, float] = {}

    def saw(self, what, is_so):
        if is_so:
            self.at.setdefault(what, time.time() - self.began)


def is_elsewhere(pod, node):
    return is_ready(pod) and pod["spec"].get("nodeName") != node


def outcomes(job):
    return [attempt.get("outcome") for attempt in job["status"]["attempts"]]


def runs_elsewhere(job, node):
    return job["status"]["phase"] == "Running" and node not in job["status"]["nodes"]


def test_a_drained_node_is_soon_empty_and_each_job_gets_its_documented_treatment(
    kube, system, nodes, judged, refusals, tell
):
    node, other = nodes
    maintain(system, other, reason="first everything runs on the node that is drained")
    web = judged.deployment("web", replicas=2)
    whole = judged.job("movable", gpus=2, seconds=600, movable=True)
    rigid = judged.job("rigid", gpus=2, seconds=600)
    shares = [judged.job(f"share-{n}", share=HALF, seconds=600, movable=n == 0) for n in range(2)]
    kube.submit(web, budget("web", available=1), judged.pod("notebook"), whole, rigid, *shares)
    kube.wait_scale("deployment", "web")
    kube.wait_pod("notebook", "Running")
    jobs = ("movable", "rigid", "share-0", "share-1")
    for name in jobs:
        kube.wait_phase(name, "Running")
    maintain(system, other)
    wait_for(lambda: held(system, node) == 8, seconds=60, what="all GPUs of the node are held")

    stop_at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=STOP_AFTER_SECONDS)
    seen, least = Timeline(), 2
    stated = stop_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    maintain(system, node, reason="a new driver", drain="All", stopAt=stated)
    wanted = {*jobs, "web, first", "web, second", "notebook", "empty"}

    def look():
        nonlocal least
        for name in jobs:
            seen.saw(name, runs_elsewhere(kube.gpujob(name), node))
        pods = kube.pods_of_app("web")
        moved = sum(is_elsewhere(pod, node) for pod in pods)
        least = min(least, sum(map(is_ready, pods)))
        seen.saw("web, first", moved >= 1)
        seen.saw("web, second", moved == 2)
        notebook = kube.kubectl("get", "pod", "notebook", "--ignore-not-found").stdout
        seen.saw("notebook", not notebook)
        seen.saw("empty", held(system, node) == 0)
        return wanted <= seen.at.keys()

    try:
        wait_for(look, seconds=150, what="the node is empty, and all but the notebook elsewhere")
    finally:
        tell("drained, in seconds: " + json.dumps({k: round(v, 1) for k, v in seen.at.items()}))

    found = {name: kube.gpujob(name) for name in jobs}
    assert {name: outcomes(job) for name, job in found.items()} == {
        "movable": ["Moved", None],
        "share-0": ["Moved", None],
        "rigid": ["Preempted", None],
        "share-1": ["Preempted", None],
    }
    (stopped, _) = found["rigid"]["status"]["attempts"]
    assert stopped["message"] == f"stopped for maintenance of node {node}: a new driver"
    assert all(not job["status"].get("restarts") for job in found.values())
    for name in ("movable", "share-0"):
        assert seen.at[name] < STOP_AFTER_SECONDS
    for name in ("rigid", "share-1", "notebook", "web, first"):
        assert seen.at[name] > STOP_AFTER_SECONDS - 2
    assert least >= 1
    assert f"evicted for maintenance of node {node}: a new driver" in kube.event_texts()
    assert refusals() == []


def held(kube, node):
    """Return the GPUs of the node that are held whole or in part."""
    (found,) = (each for each in kube.gpunodes() if each["metadata"]["name"] == node)
    return found["status"].get("held", 0) + found["status"].get("shared", 0)


def test_a_move_continues_to_its_target_after_operator_and_scheduler_restart(
    kube, system, nodes, judged, refusals
):
    """The other node has 8 GPUs: a job that requests all of them cannot have the reserved ones."""
    node, other = nodes
    maintain(system, other, reason="first everything runs on the node that is drained")
    train = judged.job("train", gpus=2, seconds=600, movable=True)
    train["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 40
    kube.submit(train)
    kube.wait_phase("train", "Running")
    maintain(system, other)
    maintain(system, node, reason="a new driver", drain="Movable")
    kept = wait_for(lambda: preemption(kube), seconds=60, what="the move is written")
    for part in ("operator", "scheduler"):
        selector = f"--selector=app.kubernetes.io/component={part}"
        system.insist("delete", "pods", selector, "--wait=false", "--grace-period=1")
    kube.submit(on_node(judged.job("rival", gpus=8, seconds=1), other))
    job = wait_for(
        lambda: (found := kube.gpujob("train"))["status"]["phase"] == "Running" and found,
        seconds=120,
        what="the job runs again",
    )
    assert outcomes(job) == ["Moved", None]
    assert job["status"]["placement"] == kept["placement"]
    assert kube.phase("rival") == "Pending"
    assert refusals() == []


def preemption(kube):
    return kube.gpujob("train")["status"].get("preemption")
