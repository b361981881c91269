# SPDX-License-Identifier: Apache-2.0
"""Pods that hold GPUs and use none of them, as GPUNodes and GPUCohorts have it."""

import msgspec
import pytest
from extender_builders import gpu_node, job, pod, whole

from gpupack_crds.kinds import GpuCohort, GpuQuota

TEN_O_CLOCK = 36000


def stamp(seconds):
    """So long after ten o'clock, as are all seconds here."""
    seconds += TEN_O_CLOCK
    return f"1970-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def allow(world, name="cluster", *, after=600, reclaim="OptedIn", parent=None):
    """A cohort lets pods be idle for so long; None: it says nothing of it."""
    rule = {} if after is None else {"idlePods": {"afterSeconds": after, "reclaim": reclaim}}
    spec = rule | ({"parent": parent} if parent else {})
    meta = {"name": name, "uid": name, "resourceVersion": "1"}
    world.quotas.cohorts.upsert(msgspec.convert({"metadata": meta, "spec": spec}, GpuCohort))


def belongs(world, cohort, namespace="team"):
    meta = {"name": "default", "namespace": namespace, "uid": namespace, "resourceVersion": "1"}
    quota = msgspec.convert({"metadata": meta, "spec": {"gpus": [], "cohort": cohort}}, GpuQuota)
    world.quotas.quotas.upsert(quota)


def rests(world, node="a", **since):
    """GPUs of a node, as gpu0=60: idle since the second 60, and all others not."""
    shown = gpu_node(node)
    devices = tuple(
        msgspec.structs.replace(
            each, idle_since=stamp(since[f"gpu{n}"]) if f"gpu{n}" in since else None
        )
        for n, each in enumerate(shown.status.devices)
    )
    status = msgspec.structs.replace(shown.status, devices=devices)
    world.ledger.gpus.upsert(msgspec.structs.replace(shown, status=status))


def holds(world, name, *gpus, opted_in=False, conditions=(), begun=10):
    annotations = {"gpupack.dev/reclaim-when-idle": "true"} if opted_in else {}
    shown = pod(name, on="a", devices=whole("a", *gpus), gpus=len(gpus))
    built = msgspec.to_builtins(shown)
    built["metadata"]["annotations"] |= annotations
    built["status"] |= {"startTime": stamp(begun), "conditions": list(conditions)}
    world.ledger.pods.upsert(msgspec.convert(built, type(shown)))
    world.decide()


def idle(world, now):
    world.now = TEN_O_CLOCK + now
    return [pod.claim.name for pod in world.owner.idle_pods()]


def evicted(world, now):
    world.now = TEN_O_CLOCK + now
    return [each.name for each in world.owner.evictions()]


def test_a_pod_is_reported_when_its_gpus_are_idle_for_longer_than_its_cohort_allows(world):
    allow(world, after=600)
    holds(world, "notebook", 0, 1)
    rests(world, gpu0=60, gpu1=100)
    assert (idle(world, 700), idle(world, 701)) == ([], ["notebook"])
    (found,) = world.owner.idle_pods()
    assert found.text == (
        "its GPUs have been idle since 1970-01-01T10:01:40Z, longer than the 600 s that GPUCohort "
        "cluster allows"
    )


def test_a_pod_that_uses_one_of_its_gpus_is_not_idle(world):
    allow(world)
    holds(world, "notebook", 0, 1)
    rests(world, gpu0=60)
    assert idle(world, 99999) == []


def test_without_a_rule_no_pod_is_idle(world):
    allow(world, after=None)
    holds(world, "notebook", 0)
    rests(world, gpu0=60)
    assert idle(world, 99999) == []


def test_workers_of_gpujobs_are_no_pods_of_their_own(world):
    allow(world)
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Running", placed=[("a", [0])]))
    shown = pod("w", on="a", devices=whole("a", 0), worker=("train", 1, 0, "uid-train"))
    world.ledger.pods.upsert(shown)
    world.decide()
    rests(world, gpu0=60)
    assert idle(world, 99999) == []


def test_idle_time_before_the_start_of_the_pod_does_not_count(world):
    allow(world)
    holds(world, "notebook", 0, begun=3600)
    rests(world, gpu0=60)
    assert idle(world, 99999) == []


def test_the_nearest_cohort_that_says_anything_counts(world):
    allow(world, after=100)
    allow(world, "research", after=5000)
    allow(world, "vision", after=None, parent="research")
    belongs(world, "vision")
    holds(world, "notebook", 0)
    rests(world, gpu0=60)
    assert (idle(world, 5060), idle(world, 5061)) == ([], ["notebook"])


def test_cohorts_in_a_ring_end_at_the_cluster_s_own_rule(world):
    allow(world, after=100)
    allow(world, "a", after=None, parent="b")
    allow(world, "b", after=None, parent="a")
    belongs(world, "a")
    holds(world, "notebook", 0)
    rests(world, gpu0=60)
    assert idle(world, 161) == ["notebook"]


@pytest.mark.parametrize(
    ("reclaim", "opted_in", "expected"),
    [("OptedIn", True, ["notebook"]), ("OptedIn", False, []), ("Never", True, [])],
)
def test_a_pod_is_evicted_only_where_its_owner_and_its_cohort_say_so(
    world, reclaim, opted_in, expected
):
    allow(world, reclaim=reclaim)
    holds(world, "notebook", 0, opted_in=opted_in)
    rests(world, gpu0=60)
    assert evicted(world, 99999) == expected


def test_a_new_scheduler_counts_from_the_same_moment(world):
    allow(world)
    rests(world, gpu0=60)
    holds(world, "notebook", 0, opted_in=True)
    world.owner.restart()
    world.decide()
    assert (evicted(world, 660), evicted(world, 661)) == ([], ["notebook"])


def test_a_restarted_agent_stops_an_eviction(world):
    allow(world)
    rests(world, gpu0=60)
    holds(world, "notebook", 0, opted_in=True)
    assert evicted(world, 661) == ["notebook"]
    rests(world)
    assert evicted(world, 662) == []


def test_evictions_that_one_namespace_s_budgets_hold_up_keep_no_other_back(world, monkeypatch):
    monkeypatch.setattr("gpupack_scheduler.queueing.pods.conditions.MAX_EVICTIONS", 1)
    allow(world)
    holds(world, "one", 0, opted_in=True)
    holds(world, "two", 1, opted_in=True)
    rests(world, gpu0=60, gpu1=60)
    assert evicted(world, 99999) == ["one"]


@pytest.mark.parametrize("written", ["never", "9999999999-01-01T00:00:00Z"])
def test_a_moment_that_is_none_is_not_known(world, written):
    allow(world)
    holds(world, "notebook", 0)
    shown = gpu_node("a")
    devices = tuple(
        msgspec.structs.replace(each, idle_since=written) for each in shown.status.devices
    )
    status = msgspec.structs.replace(shown.status, devices=devices)
    world.ledger.gpus.upsert(msgspec.structs.replace(shown, status=status))
    assert idle(world, 99999) == []
