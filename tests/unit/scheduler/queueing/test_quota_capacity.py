# SPDX-License-Identifier: Apache-2.0
"""Quotas that the cluster cannot meet: two nodes of four H100 each."""

import datetime as dt

import msgspec
import pytest
from extender_builders import gpu_node, node

from gpupack_crds.kinds import GpuCohort, GpuQuota
from gpupack_scheduler.queueing.quotas.quota_capacity import (
    CapacityReport,
    Shortfall,
    with_capacity_condition,
)

NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(hours=1)


def found(world, *gpus, namespace="team", others=()):
    for name, limits in ((namespace, gpus), *others):
        meta = {"name": "default", "namespace": name, "uid": name, "resourceVersion": "1"}
        item = {"metadata": meta, "spec": {"gpus": list(limits)}}
        world.quotas.quotas.upsert(msgspec.convert(item, GpuQuota))
    world.decide()
    return CapacityReport(world.owner.queue, world.owner.observed.cluster()).of_tenant(namespace)


@pytest.mark.parametrize(
    "limit",
    [{"model": "H100", "nominal": 8}, {"model": "*", "nominal": 8}, {"model": "h100-80gb"}],
)
def test_a_quota_that_the_cluster_meets_has_no_warning(world, limit):
    assert found(world, limit) is None


def test_a_misspelt_model_is_named_with_the_models_that_exist(world):
    reason, message = found(world, {"model": "H1000", "borrowingLimit": 2})
    assert reason == "ModelNotFound"
    assert message.startswith("no node has a GPU of model H1000 (there are NVIDIA H100 80GB HBM3")
    assert message.endswith(": correct spec.gpus, or add nodes")


@pytest.mark.parametrize(
    ("model", "named"), [("H100", "H100"), ("*", '"*" (models that no quota names)')]
)
def test_a_quota_of_more_gpus_than_the_cluster_has_is_named_with_both(world, model, named):
    assert found(world, {"model": model, "nominal": 9}) == Shortfall(
        "NominalExceedsCapacity",
        f"the quota guarantees 9 {named}, and 8 GPUs of the cluster count as {named}: "
        "correct spec.gpus, or add nodes",
    )


def test_several_models_that_the_cluster_lacks_have_one_help(world):
    limits = {"model": "H100", "nominal": 9}, {"model": "MI300X", "nominal": 1}
    message = found(world, *limits).message
    assert message.startswith("the quota guarantees 9 H100, and 8 GPUs of the cluster count as")
    assert "; no node has a GPU of model MI300X" in message
    assert message.count("correct spec.gpus") == 1


def test_quotas_that_exceed_the_cluster_together_are_named_with_their_sum(world):
    mine, theirs = {"model": "H100", "nominal": 6}, {"model": "H100", "nominal": 4}
    reason, message = found(world, mine, others=[("other", [theirs])])
    assert reason == "NominalSumExceedsCapacity"
    assert message.startswith("all quotas together guarantee 10 H100, and 8 GPUs of the cluster")


def test_a_model_that_is_missing_counts_once_it_comes(world):
    limit = {"model": "MI300X", "nominal": 2}
    assert found(world, limit).reason == "ModelNotFound"
    shown = gpu_node("c", gpus=2)
    devices = tuple(
        msgspec.structs.replace(each, model="AMD Instinct MI300X") for each in shown.status.devices
    )
    status = msgspec.structs.replace(shown.status, devices=devices)
    world.ledger.nodes.upsert(node("c"))
    world.ledger.gpus.upsert(msgspec.structs.replace(shown, status=status))
    assert found(world, limit) is None


def test_a_cohort_is_checked_like_a_quota(world):
    item = {
        "metadata": {"name": "all", "uid": "all", "resourceVersion": "1"},
        "spec": {"gpus": [{"model": "H100", "nominal": 9}]},
    }
    world.quotas.cohorts.upsert(msgspec.convert(item, GpuCohort))
    world.decide()
    report = CapacityReport(world.owner.queue, world.owner.observed.cluster())
    assert report.of_cohort("all").reason == "NominalExceedsCapacity"
    assert report.of_cohort("cluster") is None
    assert report.of_cohort("not-seen-yet") is None


def test_the_condition_keeps_its_time_while_its_status_stays():
    short, shorter = Shortfall("ModelNotFound", "none"), Shortfall("ModelNotFound", "none again")
    assert with_capacity_condition((), None, generation=1, now=NOW) == ()
    (first,) = with_capacity_condition((), short, generation=1, now=NOW)
    assert (first.type, first.status, first.reason) == ("CapacityMissing", "True", "ModelNotFound")
    (second,) = with_capacity_condition((first,), shorter, generation=2, now=LATER)
    assert (second.message, second.last_transition_time) == ("none again", "2026-11-29T12:00:00Z")
    (third,) = with_capacity_condition((second,), None, generation=2, now=LATER)
    assert (third.status, third.reason) == ("False", "CapacityFound")
    assert third.last_transition_time == "2026-11-29T13:00:00Z"
