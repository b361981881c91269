# SPDX-License-Identifier: Apache-2.0
"""What events and calls do to what is held."""

import contextlib
import logging

import msgspec
import pytest
from extender_builders import gpu_node, job, node, part, places, plan_request, pod, whole

from gpupack_crds import names
from gpupack_crds.plan import GpuShortage, PlanRefusal
from gpupack_scheduler.errors import BindRefused, RequestInvalid
from gpupack_scheduler.ledger.ledger import Outcome

WORKER = {"worker": ("train", 1, 0)}


def admitted(*placed, attempt=1, phase="Admitted", **spec):
    return job("train", attempt=attempt, phase=phase, placed=placed, **spec)


def test_plan_status_and_pod_of_a_worker_count_once(world):
    placed = places(world.plan(plan_request("train", gpus=2)))[0]
    world.ledger.jobs.upsert(admitted((placed.node, [0, 1])))
    bound = pod("p", gpus=2, on=placed.node, devices=whole(placed.node, 0, 1), **WORKER)
    world.ledger.pods.upsert(bound)
    assert world.free(placed.node) == [2, 3]


def test_a_plan_is_the_same_when_asked_again(world):
    first = world.plan(plan_request("train", workers=3))
    world.now += 9
    assert world.plan(plan_request("train", workers=3)) == first
    world.now += 9
    assert world.plan(plan_request("train", workers=3)) == first


def test_a_plan_is_not_given_away_by_the_clock(world):
    world.plan(plan_request("train", workers=8))
    world.now += 1e6
    assert isinstance(world.plan(plan_request("other", workers=8)), PlanRefusal)


@pytest.mark.parametrize(
    ("shown", "awaits"),
    [
        (job("train"), True),
        (job("train", attempt=1, phase="Pending"), True),
        (admitted(("a", [0])), False),
        (admitted(("a", [0]), deleted=True), False),
        (job("train", attempt=1, phase="Succeeded"), False),
        (job("train", suspend=True), False),
        (admitted(("a", [0]), workers=2, minWorkers=1), True),
        (admitted(("a", [0]), movable=True), True),
        (admitted(("a", [0]), phase="Failing"), False),
    ],
)
def test_a_plan_is_awaited_by_a_job_that_may_get_places(world, shown, awaits):
    world.ledger.jobs.upsert(shown)
    assert world.ledger.jobs.await_plans() is awaits


def test_a_plan_that_was_asked_for_again_is_not_overdue(world):
    world.plan(plan_request("train"))
    world.now += 9
    world.plan(plan_request("train"))
    world.now += 9
    assert world.ledger.overdue_plans() == ()
    world.now += 1
    assert len(world.ledger.overdue_plans()) == 1


def test_a_plan_of_an_attempt_that_is_over_is_free(world):
    world.plan(plan_request("train", workers=8))
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Pending"))
    assert world.states() == []


def test_a_written_plan_has_no_deadline(world):
    world.ledger.jobs.upsert(admitted(("a", [0])))
    world.now += 1e6
    world.ledger.expire()
    assert world.free("a") == [1, 2, 3]


def test_a_plan_that_lost_a_gpu_is_computed_again(world):
    before = places(world.plan(plan_request("train")))[0]
    number = int(before.devices[0].uuid[-1])
    world.ledger.gpus.upsert(gpu_node(before.node, failed=[number]))
    assert places(world.plan(plan_request("train")))[0].devices != before.devices


def test_a_gang_that_does_not_fit_holds_nothing(world):
    refusal = world.plan(plan_request("train", workers=9))
    assert refusal.never
    assert world.states() == []


def test_a_gang_in_one_clique_is_not_spread_over_gpus_without_nvlink(world):
    one_clique = {"spread": {"oneClique": True}, "workers": 2}
    refusal = world.plan(plan_request("train", **one_clique))
    assert (refusal.never, "in one NVLink clique" in refusal.message) == (True, True)
    halves = plan_request("halves", share={"percent": 50, "memory": "8Gi"}, **one_clique)
    first, second = places(world.plan(halves))
    assert first.devices == second.devices


def test_the_refusal_of_a_gang_says_with_how_many_gpus_less_it_would_fit(world):
    refusal = world.plan(plan_request("train", workers=2, gpus=5))
    assert "; the gang would fit with 1 GPU less for each worker; " in refusal.message


def test_a_gang_that_fits_later_is_not_refused_for_ever(world):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    refusal = world.plan(plan_request("train", workers=8))
    assert not refusal.never
    assert refusal.reason == "TooFewFreeGpus"


def test_the_end_of_an_attempt_frees_places_without_a_pod(world):
    world.ledger.jobs.upsert(admitted(("a", [0]), ("a", [1])))
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 1), worker=("train", 1, 1)))
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Pending"))
    assert world.free("a") == [0, 2, 3]


def test_a_job_written_by_a_newer_release_keeps_its_gpus(world):
    newer = {"failurePolicy": [{"exitCodes": [1], "action": "Snooze"}], "policy": "newest-fit"}
    written = job("train", attempt=1, phase="Preempting", placed=[("a", [0])], **newer)
    world.ledger.jobs.upsert(written)
    assert world.free("a") == [1, 2, 3]


@pytest.mark.parametrize(
    "wrong",
    [whole("a", 0, 0), part("a", 0, percent=100, memory_mib=1 << 40)],
    ids=["a GPU twice", "memory beyond any GPU"],
)
def test_one_invalid_placement_of_a_job_releases_none_of_its_gpus(world, wrong):
    world.ledger.jobs.upsert(admitted(("a", wrong), ("a", [1])))
    assert world.free("a") == [2, 3]


def test_cpu_of_a_recorded_placement_is_that_of_the_template(world):
    asking = {"name": "worker", "resources": {"requests": {"cpu": "20"}}}
    template = {"spec": {"containers": [asking], "overhead": {"cpu": "2"}}}
    placed = job("train", attempt=1, phase="Admitted", placed=[("a", [0])], template=template)
    world.ledger.jobs.upsert(placed)
    (claim,) = world.ledger.claims.workers.values()
    assert claim.placement.cpu == 22000


def test_a_deleted_job_frees_no_gpu_that_a_pod_holds(world):
    world.ledger.jobs.upsert(admitted(("a", [0])))
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0), **WORKER))
    world.ledger.jobs.remove(admitted(("a", [0])))
    assert world.free("a") == [1, 2, 3]


def test_a_pod_that_is_being_deleted_still_holds(world):
    deleting = {"deletionTimestamp": "2026-11-21T05:24:00Z"}
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0), **deleting))
    assert world.free("a") == [1, 2, 3]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_terminal_pod_holds_nothing(world, phase):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0), phase=phase))
    assert world.free("a") == [0, 1, 2, 3]


def test_a_bound_pod_that_is_not_in_a_new_list_is_gone(world):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    world.ledger.pods.replace([])
    assert world.free("a") == [0, 1, 2, 3]


def test_a_bind_in_flight_outlives_a_list_that_does_not_show_it(world):
    (where,) = world.filter(pod("p")).node_names
    world.reserve(pod("p"), where)
    world.ledger.end_bind("uid-p", Outcome.LANDED)
    world.ledger.pods.replace([])
    assert world.states() == ["landed"]


def test_a_failed_bind_leaves_the_gpus_to_the_worker(world):
    world.ledger.jobs.upsert(admitted(("a", [0])))
    world.reserve(pod("p", **WORKER), "a")
    world.ledger.end_bind("uid-p", Outcome.NOT_LANDED)
    assert world.states() == ["written"]
    assert world.free("a") == [1, 2, 3]


def test_an_unanswered_bind_has_no_deadline(world):
    (where,) = world.filter(pod("p")).node_names
    world.reserve(pod("p"), where)
    world.ledger.end_bind("uid-p", Outcome.UNKNOWN)
    world.now += 1e6
    world.ledger.expire()
    assert world.states() == ["unanswered"]


def test_the_state_of_the_watch_wins_over_a_late_answer(world):
    (where,) = world.filter(pod("p")).node_names
    world.reserve(pod("p"), where)
    world.ledger.pods.upsert(pod("p", on=where, devices=whole(where, 0)))
    world.ledger.end_bind("uid-p", Outcome.NOT_LANDED)
    assert world.states() == ["bound"]


def test_a_late_watch_event_does_not_restore_a_pod_that_a_read_showed_deleted(world):
    """Its place may be another's by then."""
    (where,) = world.filter(pod("p")).node_names
    world.reserve(pod("p"), where)
    world.ledger.end_bind("uid-p", Outcome.GONE)
    late = pod("p", on=where, devices=whole(where, 0))
    world.ledger.pods.upsert(late)
    assert world.states() == []
    world.ledger.pods.replace([late])
    assert world.states() == []
    world.ledger.pods.remove(late)
    assert not world.ledger.pods._gone


def test_a_list_without_it_shows_that_a_pod_is_gone(world):
    (where,) = world.filter(pod("p")).node_names
    world.reserve(pod("p"), where)
    world.ledger.end_bind("uid-p", Outcome.GONE)
    world.ledger.pods.replace([])
    assert not world.ledger.pods._gone


def test_two_pods_on_one_gpu_are_reported_and_both_stay_held(world, caplog):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    world.ledger.pods.upsert(pod("q", on="a", devices=whole("a", 0)))
    assert world.ledger.claims.contradictions == 1
    assert caplog.records[-1].levelno == logging.ERROR
    world.ledger.pods.remove(pod("p"))
    assert world.free("a") == [1, 2, 3]


def test_a_worker_whose_gpu_another_holds_is_not_bound(world):
    world.ledger.jobs.upsert(admitted(("a", [0])))
    world.ledger.pods.upsert(pod("q", on="a", devices=whole("a", 0)))
    with pytest.raises(BindRefused, match="GPU-a-0 on node a is claimed by others too"):
        world.reserve(pod("p", **WORKER), "a")


def test_a_worker_waits_while_the_kubelet_of_its_node_would_reject_it(world):
    world.ledger.jobs.upsert(admitted(("a", [0])))
    asking = pod("p", **WORKER)
    world.ledger.nodes.upsert(node("a", tickets=0, slots=0))
    assert "no GPUs to hand out" in world.filter(asking).failed_and_unresolvable_nodes["a"]
    with pytest.raises(BindRefused, match="no GPUs to hand out"):
        world.reserve(asking, "a")
    world.ledger.nodes.upsert(node("a"))
    assert world.filter(asking).node_names == ["a"]


def test_a_plan_on_a_node_that_is_not_ready_is_computed_again(world):
    before = places(world.plan(plan_request("train")))[0]
    world.ledger.nodes.upsert(node(before.node, ready=False))
    assert places(world.plan(plan_request("train")))[0].node != before.node


def test_a_pod_is_not_bound_to_a_node_that_filter_did_not_give(world):
    (where,) = world.filter(pod("p")).node_names
    (other,) = {"a", "b"} - {where}
    with pytest.raises(BindRefused, match=f"place is on node {where}, not on {other}"):
        world.reserve(pod("p"), other)


def test_a_gpu_that_vanished_and_came_back_is_still_held(world):
    world.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 3)))
    world.ledger.gpus.upsert(gpu_node("a", gpus=3))
    world.ledger.gpus.upsert(gpu_node("a", gpus=4))
    assert world.free("a") == [0, 1, 2]


def test_a_pod_listed_before_its_node_is_counted(world):
    world.ledger.pods.upsert(pod("p", on="c", devices=whole("c", 0)))
    world.add_node("c")
    assert world.free("c") == [1, 2, 3]


def test_an_unreadable_annotation_holds_no_device_and_is_reported(world, caplog):
    forged = {"annotations": {"gpupack.dev/devices": "[{]"}}
    world.ledger.pods.upsert(pod("p", gpus=0, on="a", **forged))
    assert world.free("a") == [0, 1, 2, 3]
    assert "pod team/p holds no device" in caplog.text


def test_a_gpu_that_two_nodes_claim_stays_with_the_first(world, caplog):
    world.ledger.nodes.upsert(node("c"))
    world.ledger.gpus.upsert(gpu_node("c", prefix="a"))
    assert "c" not in world.ledger.cluster
    assert "node c gets no work" in caplog.text
    world.ledger.gpus.remove(gpu_node("a"))
    assert "c" in world.ledger.cluster


def test_a_removed_gpu_with_a_reused_index_does_not_block_the_others(world):
    gpus = gpu_node("a", gpus=3, failed=[1])
    first, gone, last = gpus.status.devices
    devices = (first, gone, msgspec.structs.replace(last, index=gone.index))
    status = msgspec.structs.replace(gpus.status, devices=devices)
    world.ledger.gpus.upsert(msgspec.structs.replace(gpus, status=status))
    assert world.left("a") == [100, 0, 100]


def test_a_gpu_cut_into_slices_and_its_slices_are_no_whole_gpus(world):
    world.ledger.gpus.upsert(gpu_node("a", sliced=[1, 1]))
    devices = world.ledger.cluster.node("a").devices
    assert [device.uuid for device in devices] == ["GPU-a-0", "GPU-a-2", "GPU-a-3"]


def test_an_observed_node_gets_no_work_yet(world):
    world.ledger.gpus.upsert(gpu_node("a", mode="observed"))
    assert "a" not in world.ledger.cluster


def test_a_plan_counts_cpu_of_the_pod_spec(world):
    container = {"name": "worker", "resources": {"requests": {"cpu": "20"}}}
    request = plan_request("train", workers=3, pod_spec={"containers": [container]})
    assert "with 4 cores less for each worker" in world.plan(request).message


def test_a_plan_respects_the_pods_node_selector(world):
    world.ledger.nodes.upsert(node("b", labels={"zone": "east"}))
    pod_spec = {"containers": [{"name": "worker"}], "nodeSelector": {"zone": "east"}}
    placement = places(world.plan(plan_request("train", workers=4, pod_spec=pod_spec)))
    assert {each.node for each in placement} == {"b"}


@pytest.mark.parametrize(
    ("pod_spec", "text"),
    [
        ({"containers": 3}, r"podSpec: Expected `array`, got `int` - at `\$.containers`"),
        ({"tolerations": [{"key": "x", "operator": "Near"}]}, "'Near' is not a valid"),
        ({"containers": [{"resources": {"requests": {"cpu": "fast"}}}]}, "'fast' is not a quan"),
    ],
)
def test_an_unreadable_pod_spec_is_refused_with_the_place_of_the_error(world, pod_spec, text):
    with pytest.raises(RequestInvalid, match=text):
        world.plan(plan_request("train", pod_spec=pod_spec))


@pytest.mark.parametrize("cpu", ["9E", "1e300", "1e9999999"])
def test_amounts_beyond_any_machine_break_nothing(world, cpu):
    world.ledger.pods.upsert(pod("p", gpus=0, cpu=cpu, on="a"))
    with contextlib.suppress(RequestInvalid):
        assert world.filter(pod("q", cpu=cpu, gpus="9E"), nodes=["b"]).node_names == []
    assert world.free("a") == [0, 1, 2, 3]


def test_an_annotation_beyond_any_gpu_holds_no_device(world, caplog):
    share = msgspec.structs.replace(whole("a", 0)[0], memory_mib=1 << 40)
    world.ledger.pods.upsert(pod("p", gpus=0, on="a", devices=[share]))
    assert world.free("a") == [0, 1, 2, 3]
    assert "holds no device: device annotation" in caplog.text


def test_an_annotation_nested_3000_deep_holds_no_device(world, caplog):
    deep = {names.DEVICES_ANNOTATION: '[{"x":' * 3_000}
    world.ledger.pods.upsert(pod("p", gpus=0, on="a", annotations=deep))
    assert world.free("a") == [0, 1, 2, 3]
    assert "holds no device: device annotation" in caplog.text


def test_a_job_that_asks_for_memory_beyond_any_gpu_is_refused(world):
    refusal = world.plan(plan_request("train", minMemory="8000000Ti"))
    assert refusal.counts == {"GpuMemoryTooSmall": 2}


def test_a_gang_that_lacks_only_gpus_reports_a_gpu_shortage_for_autoscalers(world):
    assert world.plan(plan_request("train", workers=9)).gpu_shortage == GpuShortage()
