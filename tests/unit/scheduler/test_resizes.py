# SPDX-License-Identifier: Apache-2.0
"""Pods whose resources are being resized count as kube-scheduler counts them."""

import msgspec
import pytest
from extender_builders import World

from gpupack_scheduler.ledger.watched_pod import WatchedPod
from gpupack_scheduler.requests import pod_resources

FREE_CPU = 32_000


def watched(
    wanted,
    allocated=None,
    actual=None,
    reason=None,
    *,
    init=False,
    whole=None,
    overhead=None,
    **more,
):
    """A bound pod of one container; figures are CPUs. `whole`: the same of the pod as a whole."""
    resources = None if actual is None else {"requests": {"cpu": actual}}
    status = {"name": "c", "allocatedResources": {"cpu": allocated} if allocated else {}}
    kind = "initContainer" if init else "container"
    container = {"name": "c", "resources": {"requests": {"cpu": wanted}}}
    if init:
        container["restartPolicy"] = "Always"
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    built = {
        "metadata": {"name": "p", "namespace": "x", "uid": "uid-p"},
        "spec": {
            "nodeName": "a",
            f"{kind}s": [container],
            "resources": {"requests": {"cpu": whole}} if whole else {},
            "overhead": {"cpu": overhead} if overhead else {},
        },
        "status": {
            "phase": "Running",
            "conditions": [pending] if reason else [],
            f"{kind}Statuses": [status | ({"resources": resources} if resources else {})],
            **more,
        },
    }
    return msgspec.json.decode(msgspec.json.encode(built), type=WatchedPod)


def counted(*args, **kw):
    return pod_resources.held(watched(*args, **kw)).cpu


@pytest.mark.parametrize(
    ("figures", "cpu"),
    [
        (("1", None, None), 1000),
        (("1", "1", "1"), 1000),
        (("4", "1", "1", "Deferred"), 4000),
        (("4", "1", "1"), 4000),
        (("1000", "1", "1", "Infeasible"), 1000),
        (("1000", None, "1", "Infeasible"), 1000),
        (("1000", None, None, "Infeasible"), 1_000_000),
        (("1", "30", "30"), 30_000),
        (("1", "1", "30"), 30_000),
        (("1", "30", "30", "Infeasible"), 30_000),
    ],
)
def test_a_container_counts_the_maximum_of_desired_and_actual_resources(figures, cpu):
    assert counted(*figures) == cpu
    assert counted(*figures, init=True) == cpu


def test_older_kubernetes_says_in_another_field_that_it_refuses():
    assert counted("1000", "1", "1", resize="Infeasible") == 1000
    assert counted("4", "1", "1", resize="Deferred") == 4000


def test_a_pod_that_asks_as_a_whole_counts_likewise_and_its_overhead_once():
    shown = {
        "allocatedResources": {"cpu": "5"},
        "resources": {"requests": {"cpu": "7"}},
        "whole": "2",
        "overhead": "1",
    }
    assert counted("1", **shown) == 7000
    assert counted("1", **shown | {"whole": "9"}) == 10_000
    assert counted("1", reason="Infeasible", **shown | {"whole": "9"}) == 7000


@pytest.mark.parametrize(
    ("pod", "free"),
    [
        (watched("1000", "1", "1", "Infeasible"), FREE_CPU - 1000),
        (watched("1", "30", "30", "Deferred"), FREE_CPU - 30_000),
    ],
)
def test_the_ledger_counts_a_bound_pod_so(pod, free):
    world = World()
    world.add_node("a")
    world.ledger.pods.upsert(pod)
    assert world.ledger.cluster.arrays.free_cpu[world.ledger.cluster.row("a")] == free


def test_resources_freed_by_a_shrink_are_available():
    world = World()
    world.add_node("a")
    world.ledger.pods.upsert(watched("1", "30", "30"))
    spec = {"containers": [{"name": "worker", "resources": {"requests": {"cpu": "4"}}}]}
    assert "InsufficientCpu" in world.asks("j", pod_spec=spec).counts
    world.ledger.pods.upsert(watched("1", "1", "1"))
    world.decide()
    assert world.called() == ["j"]
