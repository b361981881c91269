# SPDX-License-Identifier: Apache-2.0
"""What administrators wrote, what of it counts, and what is used of it."""

import msgspec
import pytest
from extender_builders import MEMORY_MIB, OBSERVED, OTHER, World, gpu_node, node, pod

from gpupack_crds.kinds import GpuCohort, GpuQuota
from gpupack_crds.plan import GpuShortage, PlanRefusal, PlanResponse
from gpupack_queue import ANY, OrderPolicy
from gpupack_scheduler.queueing.quotas.quota_stores import DefaultQuota, QuotaStores
from gpupack_scheduler.queueing.quotas.usage import UsageReport


def quota(namespace, *gpus, name="default", version="1", **spec):
    meta = {"name": name, "namespace": namespace, "uid": namespace, "resourceVersion": version}
    built = {"metadata": meta, "spec": {"gpus": list(gpus), **spec}}
    return msgspec.convert(built, GpuQuota)


def cohort(name, *gpus, **spec):
    meta = {"name": name, "uid": name, "resourceVersion": "1"}
    return msgspec.convert({"metadata": meta, "spec": {"gpus": list(gpus), **spec}}, GpuCohort)


def of(model="*", nominal=0, **limits):
    return {"model": model, "nominal": nominal, **limits}


@pytest.fixture
def stores():
    return QuotaStores()


def read(stores, **default):
    return stores.read(msgspec.convert(default, DefaultQuota))


def test_a_quota_counts_in_thousandths_of_a_gpu_under_its_model(stores):
    stores.quotas.upsert(
        quota("team", of("H100", 16, lendingLimit=8), of("*", 2, borrowingLimit=0), weight=3)
    )
    (found,) = read(stores).quotas.quotas
    assert (found.tenant, found.weight) == ("team", 3.0)
    assert (found.limits["H100"].nominal, found.limits["H100"].lending) == (16_000, 8_000)
    assert (found.limits[ANY].borrowing, found.limits["H100"].borrowing) == (0, None)


def test_a_model_that_is_spelled_in_two_ways_is_one(stores):
    stores.quotas.upsert(quota("a", of("h100", 1)))
    stores.quotas.upsert(quota("b", of("H100", 2)))
    assert read(stores).quotas.keys() == {"H100"}


def test_a_tree_of_cohorts_is_read_with_order_and_minimum_run_time(stores):
    stores.cohorts.upsert(cohort("research", order="Strict", minRunSeconds=600))
    stores.cohorts.upsert(cohort("vision", parent="research"))
    stores.quotas.upsert(quota("team", cohort="vision"))
    reading = read(stores)
    top, below = sorted(reading.quotas.cohorts, key=lambda each: each.name)
    assert (top.order, top.min_runtime_seconds, below.parent) == (
        OrderPolicy.STRICT,
        600.0,
        "research",
    )
    assert (reading.quotas.quotas[0].cohort, reading.problems) == ("vision", {})


def test_cohorts_that_are_above_themselves_stand_below_the_cluster_and_say_so(stores):
    for name, parent in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")):
        stores.cohorts.upsert(cohort(name, parent=parent))
    reading = read(stores)
    parents = {each.name: each.parent for each in reading.quotas.cohorts}
    assert parents == {"a": "", "b": "c", "c": "a", "d": "a"}
    assert reading.problems == {
        ("", "a"): "it is above itself by its parent b",
        ("", "b"): "it is above itself by its parent c",
        ("", "c"): "it is above itself by its parent a",
    }


def test_a_model_that_another_quota_names_more_precisely_is_a_problem(stores):
    stores.quotas.upsert(quota("a", of("H100", 8, borrowingLimit=0)))
    stores.quotas.upsert(quota("b", of("H100 80GB", 1)))
    assert read(stores).problems == {
        ("a", "default"): "GPUs of H100 80GB do not count as H100: a quota has that longer name"
    }


def test_a_model_that_a_quota_names_twice_is_a_problem(stores):
    stores.quotas.upsert(quota("a", of("h100", 500), of("H100", 2)))
    assert "is limited twice" in read(stores).problems["a", "default"]


def test_a_chain_of_cohorts_is_cut_where_it_is_too_long(stores, world):
    for number in range(1200):
        world.quotas.cohorts.upsert(cohort(f"c{number}", parent=f"c{number + 1}"))
    world.decide()
    assert "cohorts are above it" in world.owner.observed.problems["", "c0"]


def test_a_cohort_that_is_only_named_is_said_to_be_missing(stores):
    stores.quotas.upsert(quota("team", cohort="nowhere"))
    assert "there is no GPUCohort nowhere" in read(stores).problems["team", "default"]


def test_namespaces_without_a_quota_follow_the_default_which_promises_nothing(stores):
    found = read(stores, weight=2, gpus=[{"model": "H100", "borrowingLimit": 4}]).quotas.default
    assert (found.weight, found.limits["H100"].borrowing) == (2.0, 4_000)
    with pytest.raises(msgspec.ValidationError, match="cannot promise GPUs"):
        read(stores, gpus=[{"model": "H100", "nominal": 4}])


def test_a_status_that_was_written_is_no_other_quota(stores):
    notified = []
    stores.on_change = lambda: notified.append(stores.changes)
    stores.quotas.upsert(quota("team", of("H100", 1)))
    stores.quotas.upsert(quota("team", of("H100", 1), version="2"))
    assert notified == [1]
    stores.quotas.remove(quota("team", of("H100", 1)))
    assert notified == [1, 2]


def test_a_limit_on_borrowing_holds_and_says_what_would_help(world):
    world.quotas.quotas.upsert(quota("team", of(nominal=1, borrowingLimit=1)))
    assert isinstance(world.asks("first", gpus=2), PlanResponse)
    refusal = world.asks("second")
    assert (refusal.reason, refusal.position) == ("BorrowingLimitExceeded", 1)
    assert refusal.message.startswith("borrowing limit of namespace team reached: ")
    assert "position" not in refusal.message
    world.quotas.quotas.upsert(quota("team", of(nominal=2, borrowingLimit=1), version="2"))
    world.decide()
    assert world.called() == ["second"]


def test_the_gpu_shortage_names_the_quota_left_unless_the_quota_is_the_reason(world):
    world.quotas.quotas.upsert(quota("team", of(nominal=12, borrowingLimit=2)))
    world.asks("first", gpus=4)
    assert world.asks("second", workers=2, gpus=4).gpu_shortage == GpuShortage(quota_gpus=10)
    assert world.asks("third", workers=3, gpus=4).gpu_shortage is None


@pytest.mark.parametrize(
    ("model", "left"), [("A100", 3), ("A100 80GB", 5), ("B200", 1)], ids=["named", "longer", "any"]
)
def test_the_quota_bounds_what_may_be_asked_for_of_models_that_the_cluster_does_not_have(
    world, model, left
):
    limits = [of("A100", 3, borrowingLimit=0), of("*", 1, borrowingLimit=0)]
    limits += [of("A100 80GB", 5, borrowingLimit=0)] if "80GB" in model else []
    world.quotas.quotas.upsert(quota("team", *limits))
    refusal = world.asks("train", gpus=8, gpuModels=[model])
    assert refusal.gpu_shortage == GpuShortage(quota_gpus=left)


def test_a_job_within_its_quota_goes_before_one_that_borrows(world):
    world.quotas.quotas.upsert(quota("other", of(nominal=4)))
    world.asks("holder", workers=2, gpus=4)
    world.written("holder")
    world.asks("borrower", gpus=4, submitted=1)
    world.asks("owner", gpus=4, submitted=2, namespace="other")
    world.ends("holder", nodes=["a"])
    world.decide()
    assert world.called() == ["owner"]


def test_unlent_quota_stays_free(world):
    world.quotas.quotas.upsert(quota("other", of(nominal=5, lendingLimit=1)))
    assert isinstance(world.asks("four", gpus=4), PlanResponse)
    assert isinstance(world.asks("one"), PlanRefusal)
    assert world.asks("one").reason == "QuotaExceeded"


def status(world, name, *, is_cohort=False):
    world.decide()
    report = UsageReport(world.owner.queue)
    of_it = report.of_cohort if is_cohort else report.of_tenant
    return of_it(name, generation=1)


def test_the_status_has_quota_usage_borrowed_and_lent_gpus():
    world = World()
    world.add_node("a", gpus=8)
    world.quotas.cohorts.upsert(cohort("all"))
    world.quotas.quotas.upsert(quota("team", of(nominal=2), cohort="all"))
    world.quotas.quotas.upsert(quota("other", of(nominal=5), cohort="all"))
    world.asks("train", gpus=4)
    share = {"percent": 50, "memory": f"{MEMORY_MIB // 4}Mi"}
    world.asks("notebook", share=share, namespace="other")
    world.asks("large", gpus=8)
    team, other, both = (
        status(world, "team"),
        status(world, "other"),
        status(world, "all", is_cohort=True),
    )
    assert (team.nominal, team.used, team.borrowed, team.lent) == ("2", "4", "2", "0")
    assert (team.running, team.waiting) == (1, 1)
    assert (other.nominal, other.used, other.borrowed, other.lent) == ("5", "0.5", "0", "1")
    assert (both.nominal, both.used, both.borrowed) == ("7", "4.5", "0")
    assert [each.model for each in both.models] == ["*"]
    assert float(team.share) == pytest.approx(2 / 8)


def test_models_are_distinguished():
    world = World()
    world.ledger.nodes.upsert(node("a"))
    world.ledger.gpus.upsert(gpu_node("a", gpus=4))
    world.quotas.quotas.upsert(quota("team", of("H100", 1), of("A100", 3)))
    world.asks("train", gpus=2)
    found = {each.model: (each.nominal, each.used) for each in status(world, "team").models}
    assert found == {"H100": ("1", "2"), "A100": ("3", "0")}


def test_gpus_of_two_other_plugins_on_one_node_count_each_under_its_model():
    world = World(observed=(OBSERVED, OTHER))
    world.add_node_of_two("x")
    world.quotas.quotas.upsert(quota("team", of("H100", 1), of("MI300X", 2, borrowingLimit=0)))
    world.ledger.pods.upsert(pod("p", asking={OBSERVED: "2"}, on="x"))
    world.asks("train", gpus=2, resourceName=OTHER)
    found = {each.model: (each.nominal, each.used) for each in status(world, "team").models}
    assert found == {"H100": ("1", "2"), "MI300X": ("2", "2")}
    assert isinstance(world.asks("more", gpus=1, resourceName=OTHER), PlanRefusal)
