# SPDX-License-Identifier: Apache-2.0
"""Nodes and GPUs in maintenance: no new work, and drains."""

import dataclasses

import msgspec
import pytest
from extender_builders import OBSERVED, gpu_node, job, places, pod, uuid, whole

from gpupack_scheduler.queueing.turns import Orders

NOON = "1970-01-01T12:00:00Z"
BEFORE, AFTER = 12 * 3600 - 1.0, 12 * 3600 + 1.0


def maintain(world, name, *numbers, reason="fan", mode="owned", **entry):
    """The watch shows that these GPUs of a node, without numbers all, are in maintenance."""
    named = {"gpus": [uuid(name, number) for number in numbers]} if numbers else {}
    shown = gpu_node(name, mode=mode, maintenance=[{"reason": reason, **named, **entry}])
    if mode == "observed":
        shown = gpu_node(name, mode=mode, resource=OBSERVED, maintenance=shown.spec.maintenance)
    world.ledger.gpus.upsert(shown)
    world.decide()


def runs(world, name, on, *numbers):
    """A GPUJob runs on these GPUs."""
    world.ledger.jobs.upsert(job(name, attempt=1, phase="Running", placed=[(on, numbers)]))
    world.decide()


def stands(world, name, on, *numbers):
    """A pod of its own runs on these GPUs."""
    world.ledger.pods.upsert(pod(name, on=on, devices=whole(on, *numbers), gpus=len(numbers)))
    world.decide()


def drained(world):
    """List the attempts that the operator is to end."""
    return [(each.attempt, each.node, each.cause) for each in world.turns.orders.drained]


def evicted(world):
    return [(each.name, each.reason, each.why) for each in world.owner.evictions()]


def test_a_gpu_in_maintenance_gets_no_new_work_and_the_refusal_says_so(world):
    maintain(world, "a", 0, 1, 2)
    assert world.free("a") == [3]
    maintain(world, "b")
    refused = world.asks("train", gpus=2)
    assert refused.reason == "GpuInMaintenance"
    assert "too few GPUs that are not in maintenance (most on one node: 1)" in refused.message
    assert not refused.never


def test_holders_of_a_cordoned_gpu_continue(world):
    runs(world, "train", "a", 0)
    stands(world, "notebook", "a", 1)
    maintain(world, "a")
    assert (drained(world), evicted(world)) == ([], [])
    world.ledger.gpus.upsert(gpu_node("a"))
    assert world.free("a") == [2, 3]


def test_a_plan_that_was_given_before_the_maintenance_may_begin(world):
    world.asks("train", gpus=4)
    world.written("train")
    maintain(world, "a")
    worker = pod("w", gpus=4, worker=("train", 1, 0))
    assert world.reserve(worker, "a").placement.node == "a"


def test_a_plan_that_is_not_recorded_when_maintenance_begins_is_computed_again(world):
    first = {each.node for each in places(world.asks("train", gpus=2))}
    (other,) = {"a", "b"} - first
    maintain(world, *first)
    assert {each.node for each in places(world.asks("train", gpus=2))} == {other}
    assert world.free(other) == [2, 3]
    maintain(world, other)
    assert world.asks("train", gpus=2).reason == "GpuInMaintenance"


def test_a_pod_that_is_unbound_when_maintenance_begins_is_placed_elsewhere(world):
    first = world.filter(pod("p")).node_names
    (other,) = {"a", "b"} - set(first)
    maintain(world, *first)
    assert world.filter(pod("p")).node_names == [other]


def test_a_drain_ends_jobs_and_evicts_pods_on_its_gpus_alone(world):
    runs(world, "train", "a", 0, 1)
    runs(world, "neighbor", "a", 2)
    runs(world, "elsewhere", "b", 0)
    stands(world, "notebook", "a", 3)
    maintain(world, "a", 1, 3, drain="All", reason="a fan is broken")
    assert drained(world) == [("uid-train/1", "a", "a fan is broken")]
    why = "for maintenance of node a: a fan is broken"
    assert evicted(world) == [("notebook", "Maintenance", why)]


def test_jobs_that_cannot_be_moved_continue_until_the_stop_time(world):
    world.now = BEFORE
    runs(world, "train", "a", 0)
    stands(world, "notebook", "a", 1)
    maintain(world, "a", drain="All", stopAt=NOON)
    assert (drained(world), evicted(world)) == ([], [])
    world.now = AFTER
    world.decide()
    assert [name for name, *_ in drained(world)] == ["uid-train/1"]
    assert [name for name, *_ in evicted(world)] == ["notebook"]


def test_a_drain_reports_the_reason_of_the_entry_that_drains(world):
    world.now = BEFORE
    runs(world, "train", "a", 0)
    later = {"reason": "later", "drain": "All", "stopAt": NOON}
    other = {"reason": "other", "drain": "All", "gpus": [uuid("a", 1)]}
    cordon = {"reason": "cordon", "drain": "Never"}
    mine = {"reason": "mine", "drain": "All", "gpus": [uuid("a", 0)]}
    world.ledger.gpus.upsert(gpu_node("a", maintenance=[cordon, later, other, mine]))
    world.decide()
    assert drained(world) == [("uid-train/1", "a", "mine")]


def test_no_job_is_drained_after_the_maintenance(world):
    runs(world, "train", "a", 0)
    maintain(world, "a", drain="All")
    assert drained(world)
    world.ledger.gpus.upsert(gpu_node("a"))
    world.decide()
    assert drained(world) == []


def test_an_ended_attempt_is_no_longer_drained(world):
    runs(world, "train", "a", 0)
    worker = pod("w", on="a", devices=whole("a", 0), worker=("train", 1, 0))
    world.ledger.pods.upsert(worker)
    maintain(world, "a", drain="All")
    assert drained(world)
    ended = msgspec.to_builtins(job("train", attempt=1, phase="Pending"))
    ended["status"]["attempts"] = [{"number": 1, "finishedAt": NOON, "outcome": "Preempted"}]
    world.ledger.jobs.upsert(msgspec.convert(ended, type(job("train"))))
    world.decide()
    assert world.running() == ["train"]
    assert drained(world) == []


def test_a_pod_that_leaves_already_is_not_evicted_again(world):
    leaving = {"deletionTimestamp": "1970-01-01T00:00:00Z"}
    shown = pod("notebook", on="a", devices=whole("a", 0), **leaving)
    world.ledger.pods.upsert(shown)
    maintain(world, "a", drain="All")
    assert evicted(world) == []


def test_on_an_observed_node_it_is_the_node_whichever_gpus_are_named(world):
    world.add_observed_node("c")
    shown = pod("web", on="c", asking={OBSERVED: "2"})
    world.ledger.pods.upsert(shown)
    maintain(world, "c", 7, mode="observed", drain="All")
    assert world.free("c") == []
    assert [name for name, *_ in evicted(world)] == ["web"]


@pytest.mark.parametrize("moment", ["soon", "99999-01-01T00:00:00Z"])
def test_an_invalid_stop_time_drains_no_job(world, moment):
    runs(world, "train", "a", 0)
    maintain(world, "a", drain="All", stopAt=moment)
    assert drained(world) == []


def test_a_new_drain_order_notifies_the_operator(world):
    runs(world, "train", "a", 0)
    before = world.turns._number
    maintain(world, "a", drain="All")
    assert world.turns._number == before + 1
    assert world.turns.orders == dataclasses.replace(Orders(), drained=world.turns.orders.drained)


def test_a_changed_drain_policy_changes_the_drain_orders(world):
    maintain(world, "a", 0)
    world.ledger.changes.take()
    heard = []
    world.ledger.changes.on_change = lambda: heard.append(1)
    again = gpu_node("a", maintenance=[{"reason": "fan", "gpus": [uuid("a", 0)], "drain": "All"}])
    world.ledger.gpus.upsert(again)
    assert heard
    assert world.ledger.changes.nodes == {"a"}
