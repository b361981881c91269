# SPDX-License-Identifier: Apache-2.0
"""Pods with several GPU containers on a node whose daemons are killed."""

import contextlib
import textwrap

import pytest
from chaos import restart
from harness import StillWaiting, annotated_devices, wait_for
from manifests import on_node
from node_faults import agent_of, cdi_read_only, waiting_because
from pausing import kill_in_pod, pod_paused
from test_several_containers import END, inside, seen, several, statuses, wait_running
from test_shared_pods import WAITS, containers, gang, pods_of

from gpupack_devcluster.driver import NodeComponent

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SECONDS = 180
AGENT = "gpupack_agent run"
READMITTED = "UnexpectedAdmissionError"
"""A restarting kubelet admits all pods again.

It rejects a pod whose container with devices does not run, if no device plugin has registered yet
(kubernetes#138446)."""

ONE_ENDS = WAITS + textwrap.dedent(
    """
    import json, os, pathlib

    index = int(os.environ["GPUPACK_WORKER_INDEX"])
    while index and not pathlib.Path("/dev/shm/leave").exists():
        time.sleep(0.2)
    result = {"schema": "gpupack.dev/result/v1", "headline": f"worker {index}"}
    pathlib.Path(os.environ["GPUPACK_RESULT_PATH"]).write_text(json.dumps(result))
    """
)
"""Worker 0 ends at once, the others when the test allows it."""


@pytest.fixture(autouse=True)
def nothing_is_refused(refusals):
    yield
    assert refusals() == []


def outcome(kube, name, *, restarts):
    """Wait until all containers run (empty) or the pod has ended; return the reason.

    The kubelet calls a pod Succeeded that it rejects, if its containers exit 0 on SIGTERM.
    """

    def look():
        status = kube.pod(name)["status"]
        if status["phase"] in {"Succeeded", "Failed"}:
            return [READMITTED if READMITTED in rejections(kube) else status["phase"]]
        found = statuses(kube, name)
        run = found.keys() == restarts.keys() and all(
            "running" in found[each]["state"] and found[each]["restartCount"] >= number
            for each, number in restarts.items()
        )
        return [""] if run else None

    try:
        (reason,) = wait_for(look, seconds=SECONDS, what=f"{name} runs or fails")
    except StillWaiting as error:
        raise StillWaiting(f"{error}: {kube.pod(name)['status']}") from error
    return reason


def rejections(kube):
    """Return the kubelets' messages about pods that they do not admit."""
    return kube.insist(
        "get",
        "events",
        f"--field-selector=reason={READMITTED}",
        "-o",
        "jsonpath={.items[*].reason}",
    )


KILLED = {
    "agent": ("agent",),
    "agent and kubelet": ("kubelet", "agent"),
    "containerd": ("containerd",),
}


def kill(cluster, system, node, part):
    """Kill a component of the node and restart it."""
    if part == "agent":
        kill_in_pod(cluster, agent_of(system, node), AGENT)
    else:
        restart(cluster, node, NodeComponent(part))


@pytest.mark.parametrize("parts", KILLED.values(), ids=KILLED)
@pytest.mark.parametrize("running", [False, True], ids=["first start", "one restarts"])
def test_containers_get_their_own_gpus_though_parts_are_killed_before_they_start(
    kube, system, cluster, judged, running, parts
):
    """The agent cannot write the CDI spec: the kubelet has allocated tokens, nothing starts."""
    node, restarts = cluster.nodes()[0], {"one": 0, "two": int(running)}
    pair = on_node(several(judged, "pair", one=3, two=4), node)
    with contextlib.ExitStack() as faults:
        if running:
            kube.submit(pair)
            wait_running(kube, "pair", restarts={"one": 0, "two": 0})
        faults.enter_context(cdi_read_only(cluster, system, node))
        if running:
            inside(kube, "pair", "two", END)
        else:
            kube.submit(pair)
        wait_for(lambda: waiting_because(kube, "cannot write CDI"), seconds=60, what="a refusal")
        for part in parts:
            kill(cluster, system, node, part)
    reason = outcome(kube, "pair", restarts=restarts)
    kube.submit(on_node(judged.job("next"), node))
    kube.wait_phase("next", "Succeeded", seconds=SECONDS)
    if reason:
        assert (reason, "kubelet" in parts) == (READMITTED, True)
        return
    devices = annotated_devices(kube.pod("pair"))
    assert seen(kube, "pair", "one", "two") == [devices[:3], devices[3:]]
    assert statuses(kube, "pair")["one"]["restartCount"] == 0


@pytest.mark.parametrize("agent_hangs", [False, True], ids=["agent well", "agent hangs"])
def test_a_gang_loses_no_result_when_the_kubelet_restarts_after_one_worker_has_ended(
    kube, system, cluster, judged, tell, agent_hangs
):
    node = cluster.nodes()[0]
    kube.submit(on_node(gang(ONE_ENDS, workers=2), node))
    wait_for(lambda: runs_but_first(kube), seconds=SECONDS, what="worker 0 has ended")
    with contextlib.ExitStack() as faults:
        if agent_hangs:
            faults.enter_context(pod_paused(cluster, agent_of(system, node), AGENT))
        restart(cluster, node, NodeComponent.KUBELET)
        if agent_hangs:
            wait_for(lambda: first_end(kube), seconds=SECONDS, what="the attempt ends")
    # The kubelet admits pods in order of creation: the gang's before this one. This is a Job, which
    # gets another pod: the kubelet rejects new pods, too, until the agent has registered.
    kube.submit(on_node(judged.job("next"), node))
    kube.wait_phase("next", "Succeeded", seconds=SECONDS)
    (pod,) = wait_for(lambda: runs_but_first(kube), seconds=SECONDS, what="worker 1 runs")
    ended = first_end(kube)
    tell(f"agent hangs: {agent_hangs}; the first attempt: {ended}")
    kube.insist("exec", pod, "-c", "worker-1", "--", "touch", "/dev/shm/leave")
    job = kube.wait_phase("gang", "Succeeded", "Failed", seconds=SECONDS)
    assert job["status"]["phase"] == "Succeeded", job["status"]
    found = [(each.get("worker", 0), each["headline"]) for each in job["status"]["results"]]
    assert found == [(0, "worker 0"), (1, "worker 1")]
    lost = [each["outcome"] for each in job["status"]["attempts"][:-1]]
    assert (set(lost), ended) in [(set(), None), ({"Infrastructure"}, READMITTED)]
    assert ended or not agent_hangs


def runs_but_first(kube):
    """Return the gang's one pod once worker 0 has ended and worker 1 runs."""
    found = [
        pod["metadata"]["name"]
        for pod in pods_of(kube)
        if containers(pod) == ["worker-0", "worker-1"] and states(pod) == ["terminated", "running"]
    ]
    return found if len(found) == 1 else None


def states(pod):
    said = {each["name"]: each["state"] for each in pod["status"].get("containerStatuses", ())}
    return [next(iter(said.get(name, {"unknown": {}}))) for name in containers(pod)]


def first_end(kube):
    """Return the reason with which the first attempt ended; None if it has not."""
    first = kube.gpujob("gang")["status"]["attempts"][0]
    return first["reason"] if first.get("outcome") not in {None, "Succeeded"} else None
