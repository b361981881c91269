# SPDX-License-Identifier: Apache-2.0
"""Nodes and GPUs in maintenance: who gets nothing there any more, and who is to leave."""

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
    told = gpu_node(name, mode=mode, maintenance=[{"reason": reason, **named, **entry}])
    if mode == "observed":
        told = gpu_node(name, mode=mode, resource=OBSERVED, maintenance=told.spec.maintenance)
    world.ledger.gpus.upsert(told)
    world.decide()


def runs(world, name, on, *numbers):
    """A GPUJob runs on these GPUs."""
    world.ledger.jobs.upsert(job(name, attempt=1, phase="Running", placed=[(on, numbers)]))
    world.decide()


def stands(world, name, on, *numbers):
    """A pod of its own runs on these GPUs."""
    world.ledger.pods.upsert(pod(name, on=on, devices=whole(on, *numbers), gpus=len(numbers)))
    world.decide()


def told(world):
    """What the operator is told to end."""
    return [(each.attempt, each.node, each.cause) for each in world.turns._orders.drained]


def evicted(world):
    return [(each.name, each.reason, each.why) for each in world.admissions.evictions()]


def test_a_gpu_in_maintenance_gets_no_new_work_and_the_refusal_says_so(world):
    maintain(world, "a", 0, 1, 2)
    assert world.free("a") == [3]
    maintain(world, "b")
    refused = world.asks("train", gpus=2)
    assert refused.reason == "GpuInMaintenance"
    assert "too few GPUs that are not in maintenance (most on one node: 1)" in refused.message
    assert not refused.never


def test_what_holds_a_gpu_goes_on_when_that_is_but_cordoned(world):
    runs(world, "train", "a", 0)
    stands(world, "notebook", "a", 1)
    maintain(world, "a")
    assert (told(world), evicted(world)) == ([], [])
    world.ledger.gpus.upsert(gpu_node("a"))
    assert world.free("a") == [2, 3]


def test_a_plan_that_was_given_before_the_maintenance_may_begin(world):
    world.asks("train", gpus=4)
    world.written("train")
    maintain(world, "a")
    worker = pod("w", gpus=4, worker=("train", 1, 0))
    assert world.reserve(worker, "a").placement.node == "a"


def test_a_plan_that_is_not_written_when_the_maintenance_begins_is_made_anew(world):
    first = {each.node for each in places(world.asks("train", gpus=2))}
    (other,) = {"a", "b"} - first
    maintain(world, *first)
    assert {each.node for each in places(world.asks("train", gpus=2))} == {other}
    assert world.free(other) == [2, 3]
    maintain(world, other)
    assert world.asks("train", gpus=2).reason == "GpuInMaintenance"


def test_a_pod_that_is_not_bound_when_the_maintenance_begins_gets_another_place(world):
    first = world.filter(pod("p")).node_names
    (other,) = {"a", "b"} - set(first)
    maintain(world, *first)
    assert world.filter(pod("p")).node_names == [other]


def test_a_drain_ends_jobs_and_evicts_pods_on_its_gpus_alone(world):
    runs(world, "train", "a", 0, 1)
    runs(world, "beside", "a", 2)
    runs(world, "elsewhere", "b", 0)
    stands(world, "notebook", "a", 3)
    maintain(world, "a", 1, 3, drain="All", reason="a fan is broken")
    assert told(world) == [("uid-train/1", "a", "a fan is broken")]
    why = "for maintenance of node a: a fan is broken"
    assert evicted(world) == [("notebook", "Maintenance", why)]


def test_what_cannot_be_moved_goes_on_until_the_moment_that_is_named(world):
    world.now = BEFORE
    runs(world, "train", "a", 0)
    stands(world, "notebook", "a", 1)
    maintain(world, "a", drain="All", stopAt=NOON)
    assert (told(world), evicted(world)) == ([], [])
    world.now = AFTER
    world.decide()
    assert [name for name, *_ in told(world)] == ["uid-train/1"]
    assert [name for name, *_ in evicted(world)] == ["notebook"]


def test_the_reason_that_is_told_is_that_of_the_entry_that_stops(world):
    world.now = BEFORE
    runs(world, "train", "a", 0)
    later = {"reason": "later", "drain": "All", "stopAt": NOON}
    other = {"reason": "other", "drain": "All", "gpus": [uuid("a", 1)]}
    cordon = {"reason": "cordon", "drain": "Never"}
    mine = {"reason": "mine", "drain": "All", "gpus": [uuid("a", 0)]}
    world.ledger.gpus.upsert(gpu_node("a", maintenance=[cordon, later, other, mine]))
    world.decide()
    assert told(world) == [("uid-train/1", "a", "mine")]


def test_nobody_is_to_leave_any_more_when_the_maintenance_is_over(world):
    runs(world, "train", "a", 0)
    maintain(world, "a", drain="All")
    assert told(world)
    world.ledger.gpus.upsert(gpu_node("a"))
    world.decide()
    assert told(world) == []


def test_an_attempt_that_has_been_ended_is_told_of_no_more(world):
    runs(world, "train", "a", 0)
    worker = pod("w", on="a", devices=whole("a", 0), worker=("train", 1, 0))
    world.ledger.pods.upsert(worker)
    maintain(world, "a", drain="All")
    assert told(world)
    ended = msgspec.to_builtins(job("train", attempt=1, phase="Pending"))
    ended["status"]["attempts"] = [{"number": 1, "finishedAt": NOON, "outcome": "Preempted"}]
    world.ledger.jobs.upsert(msgspec.convert(ended, type(job("train"))))
    world.decide()
    assert world.running() == ["train"]
    assert told(world) == []


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
def test_a_moment_that_cannot_be_read_stops_nobody(world, moment):
    runs(world, "train", "a", 0)
    maintain(world, "a", drain="All", stopAt=moment)
    assert told(world) == []


def test_a_drain_that_is_told_is_a_turn(world):
    runs(world, "train", "a", 0)
    before = world.turns._number
    maintain(world, "a", drain="All")
    assert world.turns._number == before + 1
    assert world.turns._orders == dataclasses.replace(Orders(), drained=world.turns._orders.drained)


def test_a_change_of_who_is_to_leave_is_news_to_the_queue(world):
    maintain(world, "a", 0)
    world.ledger.changes.take()
    heard = []
    world.ledger.changes.on_change = lambda: heard.append(1)
    again = gpu_node("a", maintenance=[{"reason": "fan", "gpus": [uuid("a", 0)], "drain": "All"}])
    world.ledger.gpus.upsert(again)
    assert heard
    assert world.ledger.changes.nodes == {"a"}
