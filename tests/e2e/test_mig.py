# SPDX-License-Identifier: Apache-2.0
"""MIG slices, from a layout to containers that have them.

The GPU and its slices are simulated; the kubelet's resources, the decisions and refusals are not.
"""

import json

import pytest
from harness import annotated_devices, placed, wait_for, why_it_waits
from node_faults import agent_of
from simulated_layout import layout, slices_of

pytestmark = [pytest.mark.alone, pytest.mark.slow]


SMALL, HALF = "1g.10gb", "3g.40gb"
"""Of an H100 with 80 GB, which the dev cluster's simulated GPUs are."""


def asking(judged, name, profile):
    """A pod of its own for one slice."""
    manifest = judged.pod(name)
    limits = {f"gpupack.dev/mig-{profile}": "1"}
    manifest["spec"]["containers"][0]["resources"] = {"limits": limits}
    return manifest


@pytest.fixture
def cut(idle, system, cluster):
    """The last GPU of the first node is cut into a half and two small slices; whole afterwards."""
    with layout(system, cluster.nodes()[0], cut=[HALF, SMALL, SMALL]) as devices:
        yield [each for each in devices if each.get("migParent")]


def test_jobs_and_pods_get_slices_of_their_profile_and_others_get_the_reason(kube, cut, judged):
    profiles = {each["uuid"]: each["migProfile"] for each in cut}
    assert {each["resource"] for each in cut} == {f"gpupack.dev/mig-{p}" for p in (SMALL, HALF)}
    assert all(each["simulated"] for each in cut)

    kube.submit(judged.job("sliced", gpus=1, workers=2, seconds=60, mig=SMALL))
    job = kube.wait_phase("sliced", "Running")
    held = [device.uuid for each in placed(job) for device in each.devices]
    assert [profiles[each] for each in held] == [SMALL, SMALL]
    assert job["status"]["gpus"] == f"2x{SMALL}"

    kube.submit(asking(judged, "half", HALF))
    pod = kube.wait_pod("half", "Running")
    assert [profiles[each] for each in annotated_devices(pod)] == [HALF]

    kube.submit(judged.job("waits", gpus=1, workers=1, seconds=1, mig=HALF))
    said = wait_for(
        lambda: kube.gpujob("waits").get("status", {}).get("message"), seconds=30, what="it waits"
    )
    assert f"free MIG slice {HALF}" in said

    kube.submit(asking(judged, "other", "7g.80gb"))
    text = wait_for(
        lambda: why_it_waits(kube.pod("other")), seconds=30, what="the pod says why it waits"
    )
    assert "no MIG slices 7g.80gb" in text


def layout_of(system, node, gpu):
    """Return the layout of the GPU in the GPUNode."""
    (found,) = (each for each in system.gpunodes() if each["metadata"]["name"] == node)
    (said,) = (each for each in found["status"]["migGpus"] if each["gpu"] == gpu)
    return said


def profiles_of(system, node):
    return sorted(each["migProfile"] for each in slices_of(system, node))


@pytest.fixture
def relayout(cut, system, cluster):
    """Wants another layout of the GPU, by a patch of its GPUNode as an administrator writes it."""
    node, gpu = cluster.nodes()[0], cut[0]["migParent"]

    def want(*profiles):
        layouts = [{"gpu": gpu, "profiles": list(profiles)}] if profiles else []
        patch = json.dumps({"spec": {"migLayouts": layouts}})
        done = system.kubectl("patch", "gpunode", node, "--type", "merge", "-p", patch)
        assert done.returncode == 0, done.stderr

    yield want, node, gpu
    want()


def test_a_gpu_is_repartitioned_once_no_pod_holds_its_slices_and_stays_so(
    kube, relayout, system, judged
):
    want, node, gpu = relayout
    kube.submit(asking(judged, "holds", SMALL))
    kube.wait_pod("holds", "Running")

    want("7g.80gb", SMALL)
    said = wait_for(
        lambda: layout_of(system, node, gpu).get("message"), seconds=60, what="it is refused"
    )
    assert f"too few memory slots for 7g.80gb, {SMALL}" in said

    want(*[SMALL] * 7)
    wait_for(
        lambda: layout_of(system, node, gpu).get("changing"), seconds=60, what="it is taken up"
    )
    assert "/holds" in layout_of(system, node, gpu)["message"]
    kube.submit(asking(judged, "waits", SMALL))
    text = wait_for(
        lambda: why_it_waits(kube.pod("waits")), seconds=30, what="the pod says why it waits"
    )
    assert "MIG slices that are not in maintenance" in text
    assert profiles_of(system, node) == sorted([HALF, SMALL, SMALL])

    kube.delete("pod", "holds", "--grace-period=1")
    wait_for(
        lambda: profiles_of(system, node) == [SMALL] * 7,
        seconds=60,
        what="the GPU is repartitioned",
    )
    new = {each["uuid"] for each in slices_of(system, node)}
    pod = kube.wait_pod("waits", "Running")
    assert set(annotated_devices(pod)) <= new

    before = agent_of(system, node)["metadata"]
    system.delete("pod", before["name"])
    wait_for(
        lambda: (now := agent_of(system, node)) and now["metadata"]["uid"] != before["uid"],
        seconds=60,
        what="another agent",
    )
    wait_for(
        lambda: not layout_of(system, node, gpu).get("changing"), seconds=60, what="it is as wanted"
    )
    assert {each["uuid"] for each in slices_of(system, node)} == new


def test_a_request_for_an_unknown_profile_is_refused_with_the_existing_ones(kube, judged):
    done = kube.apply(asking(judged, "wrong", "9g.1gb"))
    assert done.returncode != 0
    assert "resource gpupack.dev/mig-9g.1gb does not exist" in done.stderr


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"gpus": 1, "mig": "small"}, "mig is the profile of MIG slices as nvidia-smi has it"),
        (
            {"mig": "1g.10gb", "share": {"percent": 20, "memory": "1Gi"}},
            "MIG slices cannot be shared",
        ),
        ({"gpus": 2, "mig": "1g.10gb", "interconnect": "nvlink"}, "MIG slices have no NVLink"),
    ],
)
def test_an_invalid_slice_request_is_refused_with_what_to_write(kube, spec, text):
    job = {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUJob",
        "metadata": {"name": "wrong"},
        "spec": spec | {"workload": {"name": "matmul"}},
    }
    done = kube.apply(job)
    assert done.returncode != 0
    assert text in done.stderr
