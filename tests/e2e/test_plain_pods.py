# SPDX-License-Identifier: Apache-2.0
"""Deployments, StatefulSets and pods of their own that ask gpupack for GPUs."""

import pytest
from harness import annotated_devices, annotation, placed, wait_equal, wait_for, why_it_waits
from manifests import Share

ALL = 16
"""GPUs of the cluster."""
QUARTER = Share(percent=25, memory_mib=16384)


@pytest.fixture(autouse=True)
def nothing_else_is_held(idle):
    pass


@pytest.fixture(autouse=True)
def nothing_is_refused(refusals):
    yield
    assert refusals() == []


def gpus(pods):
    """All the GPUs that these pods were given."""
    return sorted(uuid for pod in pods for uuid in annotated_devices(pod))


def pod_names(pods):
    return {pod["metadata"]["name"] for pod in pods}


def why(kube, app):
    """Return the message of the pod that has no node yet."""
    return wait_for(
        lambda: next(filter(None, map(why_it_waits, kube.pods_of_app(app))), None),
        seconds=60,
        what=f"a pod of {app} says why it waits",
    )


def test_a_deployment_of_whole_gpus_scales_up_and_down_and_freed_gpus_are_used_again(kube, judged):
    kube.submit(judged.deployment("server", replicas=2, gpus=4))
    assert len(set(gpus(kube.wait_scale("deployment", "server", seconds=120)))) == 8
    kube.scale("deployment", "server", 4)
    assert len(set(gpus(kube.wait_scale("deployment", "server", seconds=120)))) == ALL
    kube.scale("deployment", "server", 1)
    left = gpus(kube.wait_scale("deployment", "server"))
    kube.submit(judged.job("takes-what-was-freed", workers=3, gpus=4))
    job = kube.wait_phase("takes-what-was-freed", "Succeeded", "Failed", seconds=120)
    taken = [device.uuid for place in placed(job) for device in place.devices]
    assert job["status"]["phase"] == "Succeeded"
    assert len({*taken, *left}) == ALL


def test_a_deployment_of_shares_fills_one_gpu_and_then_the_next(kube, judged, peaks):
    kube.submit(judged.deployment("server", replicas=4, share=QUARTER))
    assert len(set(gpus(kube.wait_scale("deployment", "server", seconds=120)))) == 1
    kube.scale("deployment", "server", 5)
    pods = kube.wait_scale("deployment", "server", seconds=120)
    assert len(set(gpus(pods))) == 2
    assert {(d["percent"], d["memoryMiB"]) for pod in pods for d in annotation(pod)} == {QUARTER}
    wait_equal(
        lambda: sorted(peak["percent"] for peak in peaks().values()),
        [25, 100],
        what="five judges hold their shares",
    )


def test_a_stateful_set_gets_its_gpus_one_pod_after_the_other(kube, judged):
    kube.submit(judged.stateful_set("trainer", replicas=2, gpus=8))
    pods = kube.wait_scale("statefulset", "trainer", seconds=120)
    assert pod_names(pods) == {"trainer-0", "trainer-1"}
    assert len(set(gpus(pods))) == ALL


@pytest.mark.slow
def test_a_pod_of_a_stateful_set_comes_back_under_its_name_on_a_full_cluster(kube, judged):
    kube.submit(judged.stateful_set("trainer", replicas=2, gpus=8))
    before = kube.wait_scale("statefulset", "trainer", seconds=120)
    kube.delete("pod", "trainer-1")
    after = kube.wait_scale("statefulset", "trainer", seconds=120)
    assert pod_names(after) == pod_names(before)
    assert gpus(after) == gpus(before)


def test_a_notebook_and_a_job_share_a_gpu(kube, judged, peaks):
    kube.submit(judged.pod("notebook", share=Share(40, 16384)))
    (gpu,) = annotated_devices(kube.wait_pod("notebook", "Running"))
    alone = {gpu: {"percent": 40, "memoryMiB": 16384, "shares": 1}}
    wait_equal(peaks, alone, what="the notebook's judge holds its share")
    kube.submit(judged.job("job", share=Share(60, 16384)))
    job = kube.wait_phase("job", "Succeeded", "Failed", seconds=120)
    assert [device.uuid for device in placed(job)[0].devices] == [gpu]
    assert peaks()[gpu] == {"percent": 100, "memoryMiB": 32768, "shares": 2}


OLD_FIRST = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
FULL = {
    "whole, by default": {"replicas": 4, "gpus": 4},
    "whole, an old pod first": {"replicas": 2, "gpus": 8, "strategy": OLD_FIRST},
    "shares, an old pod first": {"replicas": 16, "share": Share(90, 70000), "strategy": OLD_FIRST},
}


@pytest.mark.slow
@pytest.mark.parametrize("spec", FULL.values(), ids=FULL)
def test_a_rolling_update_of_a_full_cluster_ends(kube, judged, spec):
    kube.submit(judged.deployment("server", **spec))
    before = kube.wait_scale("deployment", "server", seconds=240)
    assert len(set(gpus(before))) == ALL
    kube.submit(judged.deployment("server", linger_seconds=0.5, **spec))
    rolled = kube.kubectl("rollout", "status", "deployment/server", "--timeout=300s")
    assert rolled.returncode == 0, rolled.stderr
    after = kube.wait_scale("deployment", "server")
    assert not pod_names(before) & pod_names(after)
    assert gpus(after) == gpus(before)


@pytest.mark.slow
def test_a_rolling_update_with_one_free_place_ends_by_default(kube, judged):
    kube.submit(judged.deployment("server", replicas=3, gpus=4, linger_seconds=1))
    before = kube.wait_scale("deployment", "server", seconds=120)
    kube.submit(judged.deployment("server", replicas=3, gpus=4, linger_seconds=2))
    rolled = kube.kubectl("rollout", "status", "deployment/server", "--timeout=240s")
    assert rolled.returncode == 0, rolled.stderr
    after = kube.wait_scale("deployment", "server")
    assert not pod_names(before) & pod_names(after)
    assert len(set(gpus(after))) == 12


def test_the_condition_of_a_pod_that_cannot_fit_has_the_reason(kube, judged):
    kube.submit(judged.deployment("server", replicas=3, gpus=8))
    said = why(kube, "server")
    assert "fewer than 8 free GPUs" in said
    kube.scale("deployment", "server", 2)
    assert len(kube.wait_scale("deployment", "server", seconds=120)) == 2


def test_the_condition_of_a_share_that_cannot_fit_has_the_reason(kube, judged):
    too_much = Share(percent=10, memory_mib=judged.gpu_memory_mib + 1)
    kube.submit(judged.deployment("server", share=too_much))
    assert f"GPU memory is below {too_much.memory_mib} MiB" in why(kube, "server")
