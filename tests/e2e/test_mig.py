# SPDX-License-Identifier: Apache-2.0
"""MIG slices, from a layout to containers that have them.

The GPU and its slices are simulated; the kubelet's resources, the decisions and refusals are not.
"""

import pytest
from harness import annotated_devices, placed, wait_for, why_it_waits
from simulated_layout import layout

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


def test_jobs_and_pods_get_slices_of_their_profile_and_others_are_told_why_not(kube, cut, judged):
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


def test_a_pod_that_asks_for_a_profile_that_is_none_is_refused_with_those_there_are(kube, judged):
    done = kube.apply(asking(judged, "wrong", "9g.1gb"))
    assert done.returncode != 0
    assert "there is no resource gpupack.dev/mig-9g.1gb" in done.stderr


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"gpus": 1, "mig": "small"}, "mig is the profile of MIG slices as nvidia-smi has it"),
        (
            {"mig": "1g.10gb", "share": {"percent": 20, "memory": "1Gi"}},
            "a MIG slice is not shared",
        ),
        ({"gpus": 2, "mig": "1g.10gb", "interconnect": "nvlink"}, "MIG slices have no NVLink"),
    ],
)
def test_what_no_slice_can_be_is_refused_with_what_to_write(kube, spec, text):
    job = {
        "apiVersion": "gpupack.dev/v1alpha1",
        "kind": "GPUJob",
        "metadata": {"name": "wrong"},
        "spec": spec | {"workload": {"name": "matmul"}},
    }
    done = kube.apply(job)
    assert done.returncode != 0
    assert text in done.stderr
