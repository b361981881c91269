# SPDX-License-Identifier: Apache-2.0
"""Workers that save on SIGTERM and exit 0, as the docs ask: their job continues after any end.

The judge holds its GPUs until SIGTERM, leaves a result and exits 0.
"""

import contextlib
import json

import pytest
from harness import Kube, wait_for
from manifests import UNTIL_TERM, on_node
from parts import OPERATOR, all_up

SECONDS = 60
"""For what takes a few seconds where nothing else runs."""
DEADLINE_SECONDS = 12
KEPT = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
TAINT = "gpupack-test/repair"


@pytest.fixture
def saver(kube, judged):
    """Runs a job that saves on SIGTERM."""

    def run(name, *, node=None, **spec):
        job = judged.job(name, seconds=UNTIL_TERM, **spec)
        job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 30
        kube.submit(job if node is None else on_node(job, node))
        return kube.wait_phase(name, "Running")

    return run


def first_end(kube, name):
    """The first attempt, once it has ended."""

    def look():
        first = kube.gpujob(name)["status"]["attempts"][0]
        return first if first.get("outcome") else None

    return wait_for(look, seconds=SECONDS, what=f"the first attempt of {name} has ended")


def goes_on(kube, name, *reasons):
    """Assert that a job lost its first attempt for one of these reasons, and has not ended."""
    first = first_end(kube, name)
    assert (first["outcome"], first["reason"] in reasons) == ("Infrastructure", True), first
    status = kube.gpujob(name)["status"]
    assert status["phase"] in {"Pending", "Admitted", "Running"}
    assert (status.get("results"), status.get("restarts", 0)) == (None, 0)


def delete(kube: Kube, pod: str) -> None:
    kube.delete("pod", pod, "--wait=false")


def evict(kube: Kube, pod: str) -> None:
    meta = {"name": pod, "namespace": kube.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{kube.namespace}/pods/{pod}/eviction"
    kube.insist("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


@contextlib.contextmanager
def drained(kube: Kube, node: str, job: str):
    """`kubectl drain` of a node, of this job's pods alone."""
    flags = ("--delete-emptydir-data", "--ignore-daemonsets", f"--timeout={SECONDS}s")
    try:
        kube.insist("drain", node, f"--pod-selector=gpupack.dev/job={job}", *flags)
        yield
    finally:
        kube.insist("uncordon", node)


@contextlib.contextmanager
def tainted(kube: Kube, node: str):
    """The node has a NoExecute taint that no worker tolerates."""
    try:
        kube.insist("taint", "node", node, f"{TAINT}=:NoExecute", "--overwrite")
        yield
    finally:
        kube.insist("taint", "node", node, f"{TAINT}-")


@contextlib.contextmanager
def no_operator(system: Kube):
    """No replica of the operator runs."""
    count = system.get("deployment", "gpupack-operator")["spec"]["replicas"]
    kind, name = OPERATOR.split("/")
    try:
        system.scale(kind, name, 0)
        selector = "--selector=app.kubernetes.io/component=operator"
        system.insist("wait", "pod", selector, "--for=delete", f"--timeout={SECONDS}s")
        yield
    finally:
        system.scale(kind, name, count)
        all_up(system)


@pytest.mark.parametrize(
    ("end", "reason"), [(delete, "PodDeleted"), (evict, "EvictionByEvictionAPI")]
)
def test_a_worker_that_is_ended_and_exits_0_starts_again(kube, saver, end, reason):
    saver("saver")
    (pod,) = kube.pods("saver")
    end(kube, pod["metadata"]["name"])
    goes_on(kube, "saver", reason)


@pytest.mark.parametrize("separate", [True, False], ids=["separate pods", "one pod"])
def test_an_interrupted_worker_that_exits_0_restarts_the_gang(kube, saver, separate):
    saver("gang", workers=2, node=kube.nodes()[0], podPerWorker=separate)
    pods = kube.pods("gang")
    assert len(pods) == (2 if separate else 1)
    evict(kube, pods[0]["metadata"]["name"])
    goes_on(kube, "gang", "EvictionByEvictionAPI")


@pytest.mark.alone
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_job_whose_node_is_drained_starts_again_although_its_workers_exit_0(kube, saver, workers):
    node = kube.nodes()[0]
    name = f"drained-{workers}"
    saver(name, node=node, workers=workers)
    with drained(kube, node, name):
        goes_on(kube, name, "EvictionByEvictionAPI")


@pytest.mark.slow
@pytest.mark.alone
def test_a_worker_that_a_taint_ends_and_that_exits_0_starts_again(kube, saver):
    """The taint may end the leading operator too, and then the pod is gone before its successor."""
    node = kube.nodes()[0]
    saver("tainted", node=node)
    with tainted(kube, node):
        goes_on(kube, "tainted", "DeletionByTaintManager", "PodLost")


@pytest.mark.alone
@pytest.mark.slow
def test_ends_while_the_operator_is_down_are_no_success(kube, system, saver):
    saver("late", activeDeadlineSeconds=DEADLINE_SECONDS)
    saver("lost")
    with no_operator(system):
        (pod,) = kube.pods("lost")
        delete(kube, pod["metadata"]["name"])
        for job in ("job/late-1", "job/lost-1"):
            state = "Failed" if "late" in job else "Complete"
            kube.insist("wait", job, f"--for=condition={state}", f"--timeout={SECONDS}s")
    late = kube.wait_phase("late", "Failed", "Succeeded")
    assert (late["status"]["phase"], late["status"]["reason"]) == ("Failed", "DeadlineExceeded")
    assert late["status"].get("results") is None
    goes_on(kube, "lost", "PodLost")


def test_a_worker_forbids_scale_down_of_its_node_unless_its_job_is_movable(kube, saver):
    saver("stays")
    saver("moves", movable=True)
    (stays,), (moves,) = kube.pods("stays"), kube.pods("moves")
    assert stays["metadata"]["annotations"].items() >= KEPT.items()
    assert not moves["metadata"]["annotations"].keys() & KEPT.keys()
