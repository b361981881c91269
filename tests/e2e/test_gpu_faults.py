# SPDX-License-Identifier: Apache-2.0
"""GPUs that disappear and come back, while jobs and pods hold them.

The GPUs are simulated; the agent that finds one missing, and all that follows, is not.
"""

import datetime as dt

import pytest
import yaml
from harness import annotated_devices, pod_condition, wait_for
from manifests import on_node
from simulated_layout import inventory_of, write

pytestmark = [pytest.mark.alone, pytest.mark.slow]

GOES_ON_SECONDS = 10.0
"""From what the agent says to all workers elsewhere."""


@pytest.fixture
def node(idle, cluster):
    return cluster.nodes()[0]


@pytest.fixture
def inventory(system, node):
    """Sets how many GPUs the node has, as its agent finds them; all of them afterwards."""
    before, everywhere = inventory_of(system)
    (gpu,) = everywhere["devices"]

    def has(count):
        here = {"match": node, "devices": [gpu | {"count": count}]}
        write(system, node, yaml.safe_dump({"nodes": [here, everywhere]}))

    yield has
    write(system, node, before)
    wait_for(lambda: not quarantined(system, node), seconds=90, what="no GPU is in quarantine")


@pytest.fixture
def cohort(kube):
    """Sets what becomes of this namespace's pods when a GPU of theirs failed."""

    def says(rule):
        kind = {"apiVersion": "gpupack.dev/v1beta1"}
        meta, spec = {"name": kube.namespace}, {"failedGpuPods": rule}
        kube.submit(kind | {"kind": "GPUCohort", "metadata": meta, "spec": spec})
        meta, spec = {"name": "default"}, {"cohort": kube.namespace, "gpus": []}
        kube.submit(kind | {"kind": "GPUQuota", "metadata": meta, "spec": spec})

    yield says
    kube.kubectl("delete", "gpucohort", kube.namespace, "--ignore-not-found")


def found(kube, node):
    """Its GPUNode."""
    (gpus,) = (each for each in kube.gpunodes() if each["metadata"]["name"] == node)
    return gpus


def graded(kube, node, index):
    """Return the health of one GPU, the rules that applied, and since when."""
    (device,) = (each for each in found(kube, node)["status"]["devices"] if each["index"] == index)
    return device["health"], device.get("causes", []), device.get("since")


def quarantined(kube, node):
    """GPUs, and the phase of each."""
    entries = found(kube, node).get("spec", {}).get("quarantine", [])
    return {each["gpu"]: each.get("phase", "Quarantined") for each in entries}


def moment(text):
    return dt.datetime.fromisoformat(text)


def test_a_gang_whose_gpu_failed_runs_elsewhere_within_seconds_and_the_gpu_is_quarantined(
    kube, cluster, system, node, inventory, judged
):
    other = cluster.nodes()[1]
    kube.submit(on_node(judged.job("most", gpus=6, seconds=600), node))
    kube.wait_phase("most", "Running")
    system.insist("cordon", other)
    try:
        kube.submit(judged.job("gang", gpus=1, workers=2, seconds=600))
        kube.wait_phase("gang", "Running")
    finally:
        system.insist("uncordon", other)
    lost = sorted(each for pod in kube.pods("gang") for each in annotated_devices(pod))
    assert [each[-2:] for each in lost] == ["-6", "-7"]
    inventory(7)
    wait_for(lambda: graded(kube, node, 7)[0] == "Failed", seconds=60, what="the loss is reported")
    wait_for(
        lambda: (
            kube.gpujob("gang")["status"].get("attempt") == 2 and kube.phase("gang") == "Running"
        ),
        seconds=60,
        what="the gang runs again",
    )
    first, _ = kube.gpujob("gang")["status"]["attempts"]
    assert (first["outcome"], first["reason"]) == ("Infrastructure", "GpuFailed")
    assert first["fault"]["node"] == node
    assert f"{lost[1]}: the driver no longer lists this GPU" in first["message"]
    pods = kube.pods("gang")
    assert {pod["spec"]["nodeName"] for pod in pods} == {other}
    started = max(moment(pod["status"]["startTime"]) for pod in pods)
    _, causes, since = graded(kube, node, 7)
    assert causes == ["GpuMissing"]
    assert (started - moment(since)).total_seconds() <= GOES_ON_SECONDS
    assert kube.phase("most") == "Running"
    wait_for(lambda: quarantined(kube, node), seconds=60, what="the quarantine is written")
    assert quarantined(kube, node) == {lost[1]: "Quarantined"}
    kube.submit(on_node(judged.job("two", gpus=2), node))
    wait_for(
        lambda: "fewer than 2 free GPUs" in kube.gpujob("two").get("status", {}).get("message", ""),
        seconds=60,
        what="it says for what it waits",
    )
    inventory(8)
    wait_for(lambda: graded(kube, node, 7)[0] == "Healthy", seconds=60, what="it is back")
    wait_for(lambda: not quarantined(kube, node), seconds=60, what="its probation is over")
    kube.wait_phase("two", "Succeeded")
    about = f"--field-selector=involvedObject.name={node}"
    events = system.kubectl("get", "events", "--namespace=default", about).stdout
    assert "Quarantined" in events
    assert "Released" in events


def test_a_pod_on_a_failed_gpu_gets_a_condition_and_is_evicted_if_its_cohort_says_so(
    kube, node, inventory, judged, cohort
):
    kube.submit(on_node(judged.job("most", gpus=6, seconds=600), node))
    kube.wait_phase("most", "Running")
    for name in ("notebook", "stays"):
        kube.submit(pinned(judged.pod(name), node))
        kube.wait_pod(name, "Running")
    inventory(7)
    wait_for(
        lambda: failed_condition(kube, "stays") == "True",
        seconds=60,
        what="the pod gets its condition",
    )
    assert "GpuFailed" in kube.events("stays")
    assert failed_condition(kube, "notebook") == ""
    inventory(8)
    wait_for(
        lambda: failed_condition(kube, "stays") == "False",
        seconds=60,
        what="the condition is cleared",
    )
    cohort("Evict")
    inventory(7)
    wait_for(
        lambda: kube.kubectl("get", "pod", "stays").returncode != 0,
        seconds=90,
        what="the pod is evicted",
    )
    assert kube.pod("notebook")["status"]["phase"] == "Running"


def failed_condition(kube, name):
    """Return the message of its condition; empty if there is none."""
    return pod_condition(kube.pod(name), "gpupack.dev/GpuFailed").get("status", "")


def pinned(pod, node):
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return pod
