# SPDX-License-Identifier: Apache-2.0
"""Pods that are deleted by force while their processes still use their GPUs."""

import pytest
from harness import annotated_devices, wait_for, why_it_waits
from manifests import Share, on_node
from node_faults import lingering, unkillable
from pausing import pids_of

ASKS = {"whole": {"gpus": 1}, "share": {"share": Share(percent=60, memory_mib=30000)}}


@pytest.fixture
def last_gpu(kube, cluster, judged):
    """Return pods that request the one GPU that is left on a node."""
    node = cluster.nodes()[0]

    def pod(name, **ask):
        return on_node(judged.pod(name, **ask), node)

    kube.submit(pod("rest", gpus=7))
    kube.wait_pod("rest", "Running")
    return pod


@pytest.fixture(params=ASKS.values(), ids=ASKS.keys())
def ask(request):
    return request.param


def force_delete(kube, name):
    kube.delete("pod", name, "--force", "--grace-period=0")


def test_a_successor_of_a_force_deleted_pod_starts_only_when_the_old_process_is_gone(
    kube, cluster, last_gpu, ask, refusals
):
    kube.submit(last_gpu("old", **ask))
    old = kube.wait_pod("old", "Running")
    with unkillable(cluster, old):
        force_delete(kube, "old")
        kube.submit(last_gpu("new", **ask))
        wait_for(
            lambda: kept_back(kube.pod("new")) or lingering(kube, cluster.nodes()),
            seconds=60,
            what="the kubelet holds back new, or its scheduler knows of the old process",
        )
        assert pids_of(cluster, old, "judge.py")
    new = kube.wait_pod("new", "Running")
    assert annotated_devices(new) == annotated_devices(old)
    assert refusals() == []


def test_a_gpu_gets_no_new_work_while_a_force_deleted_pod_uses_it_and_is_free_afterwards(
    kube, cluster, last_gpu, ask, refusals
):
    kube.submit(last_gpu("old", **ask))
    old = kube.wait_pod("old", "Running")
    with unkillable(cluster, old):
        force_delete(kube, "old")
        wait_for(
            lambda: lingering(kube, cluster.nodes()) == [f"{kube.namespace}/old"],
            seconds=60,
            what="the GPUNode names the pod that still holds the GPU",
        )
        kube.submit(last_gpu("new", **ask))
        reason = wait_for(lambda: why_it_waits(kube.pod("new")), seconds=60, what="new waits")
        assert "fewer than 1 free GPU" in reason or "no GPU has 60% and 30000 MiB free" in reason
    wait_for(
        lambda: not lingering(kube, cluster.nodes()), seconds=60, what="no process holds the GPU"
    )
    new = kube.wait_pod("new", "Running")
    assert annotated_devices(new) == annotated_devices(old)
    assert refusals() == []


def kept_back(pod):
    """Return whether scheduler or agent have reported that the GPU is not free."""
    waiting = [each["state"].get("waiting") for each in pod["status"].get("containerStatuses", ())]
    said = [each.get("message", "") for each in waiting if each]
    return bool(why_it_waits(pod)) or any(
        "not gone" in text or "is held by" in text for text in said
    )
