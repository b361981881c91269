# SPDX-License-Identifier: Apache-2.0
"""Movable jobs leave GPUs in maintenance: written down first, and at the places that were kept."""

import msgspec
import pytest
from extender_builders import World, gpu_node, job, pod, uuid, whole

from gpupack_crds.gpujob_status import Preemption, Victims
from gpupack_queue import Preempt, PreemptionReason, Victim
from gpupack_scheduler.ledger.placed_job import PlacedJob

FINISHED = "1970-01-01T00:16:40Z"


@pytest.fixture
def world():
    """Two nodes of 4 GPUs."""
    return new_world()


def new_world():
    built = World()
    for name in ("a", "b"):
        built.add_node(name)
    return built


def maintain(world, name, *numbers, drain="Movable"):
    named = {"gpus": [uuid(name, number) for number in numbers]} if numbers else {}
    entry = {"reason": "fan", "drain": drain, **named}
    world.ledger.gpus.upsert(gpu_node(name, maintenance=[entry]))
    world.decide()


def runs(world, name, on, *numbers, movable=True, **spec):
    """A GPUJob runs on these GPUs."""
    spec = {"gpus": len(numbers), "movable": movable} | spec
    shown = job(name, attempt=1, phase="Running", placed=[(on, numbers)], **spec)
    world.ledger.jobs.upsert(shown)
    worker = pod(f"{name}-w", on=on, devices=whole(on, *numbers), worker=(name, 1, 0))
    world.ledger.pods.upsert(worker)
    world.decide()
    return worker


def orders(world):
    return {each.attempt: each for each in world.turns.orders.moves}


def drained(world):
    return [each.attempt for each in world.turns.orders.drained]


def writes(world, name, preemption, **spec):
    """The watch shows the status with which the operator ends the attempt."""
    shown = job(name, attempt=1, phase="Pending", **({"gpus": 2, "movable": True} | spec))
    built = msgspec.to_builtins(shown)
    built["status"] |= {
        "preemption": msgspec.to_builtins(preemption) if preemption else None,
        "attempts": [{"number": 1, "finishedAt": FINISHED, "outcome": "Moved"}],
    }
    world.ledger.jobs.upsert(msgspec.json.decode(msgspec.json.encode(built), type=PlacedJob))
    world.decide()


def test_a_move_order_names_the_new_node_and_the_reason(world):
    runs(world, "train", "a", 0, 1)
    maintain(world, "a", 0)
    (order,) = orders(world).values()
    assert (order.attempt, order.node, order.cause) == ("uid-train/1", "a", "fan")
    (victims,) = order.preemption.victims
    assert (victims.reason, victims.attempts) == ("Maintenance", ("uid-train/1",))
    assert [each.node for each in order.preemption.placement] == ["a"]
    assert drained(world) == []


def test_a_moved_job_gets_exactly_its_reserved_gpus(world):
    worker = runs(world, "train", "a", 0, 1)
    maintain(world, "a")
    preemption = orders(world)["uid-train/1"].preemption
    writes(world, "train", preemption)
    assert orders(world) == {}
    assert world.asks("large", gpus=4).counts == {"GpuInMaintenance": 1, "TooFewFreeGpus": 1}
    world.ledger.pods.remove(worker)
    answer = world.asks("train", attempt=2, gpus=2, movable=True)
    assert answer.placement == preemption.placement


def test_no_job_is_moved_without_a_new_place(world):
    runs(world, "train", "a", 0, 1)
    runs(world, "other", "b", 0, 1, 2, movable=False)
    maintain(world, "a")
    assert orders(world) == {}


def test_a_move_that_is_not_recorded_in_time_expires(world):
    runs(world, "train", "a", 0, 1)
    maintain(world, "a")
    assert orders(world)
    world.ledger.gpus.upsert(gpu_node("a"))
    world.now += world.decisions.plan_hold_seconds + 1
    world.decide()
    assert orders(world) == {}
    assert world.asks("large", gpus=4).placement


def test_an_order_says_until_when_it_is_to_be_written(world):
    runs(world, "train", "a", 0, 1)
    maintain(world, "a")
    assert orders(world)["uid-train/1"].until == "1970-01-01T00:16:50Z"


@pytest.mark.parametrize("pods_remain", [True, False])
def test_a_process_that_starts_during_a_move_keeps_its_gpus(pods_remain):
    before = new_world()
    runs(before, "train", "a", 0, 1)
    maintain(before, "a")
    preemption = orders(before)["uid-train/1"].preemption
    after = new_world()
    if pods_remain:
        worker = pod("w", on="a", devices=whole("a", 0, 1), worker=("train", 1, 0))
        after.ledger.pods.upsert(worker)
    writes(after, "train", preemption)
    maintain(after, "a")
    assert after.asks("large", gpus=4).counts == {"GpuInMaintenance": 1, "TooFewFreeGpus": 1}
    if pods_remain:
        after.ledger.pods.remove(worker)
    assert after.asks("train", attempt=2, gpus=2).placement == preemption.placement


@pytest.mark.parametrize(("seconds", "is_kept"), [(89, True), (91, False)])
def test_a_moved_job_has_the_same_time_to_end_after_a_restart(seconds, is_kept):
    """Its grace period of 30 s and the timeout of 120 s began with the decision."""
    before = new_world()
    runs(before, "train", "a", 0, 1)
    maintain(before, "a")
    after = new_world()
    after.ledger.pods.upsert(pod("w", on="a", devices=whole("a", 0, 1), worker=("train", 1, 0)))
    after.now = before.now + 60
    writes(after, "train", orders(before)["uid-train/1"].preemption)
    after.now += seconds
    after.decide()
    assert ("uid-train/1" in after.owner.queue.state.reserved) == is_kept


@pytest.mark.parametrize("end", ["gone", "suspended", "forgotten"])
def test_the_reserved_gpus_of_a_moved_job_that_does_not_return_are_free_for_any_job(world, end):
    worker = runs(world, "train", "a", 0, 1)
    maintain(world, "a")
    preemption = orders(world)["uid-train/1"].preemption
    writes(world, "train", preemption)
    world.ledger.pods.remove(worker)
    if end == "gone":
        world.ledger.jobs.remove(job("train"))
    else:
        changed = {"suspend": True} if end == "suspended" else {}
        writes(world, "train", preemption if end == "suspended" else None, **changed)
    world.decide()
    assert world.asks("large", gpus=4).placement


def test_a_moved_job_goes_elsewhere_when_its_reserved_gpus_fail(world):
    world.add_node("c")
    worker = runs(world, "train", "a", 0, 1)
    maintain(world, "a")
    preemption = orders(world)["uid-train/1"].preemption
    (kept,) = preemption.placement
    writes(world, "train", preemption)
    world.ledger.gpus.upsert(gpu_node(kept.node, failed=[0, 1, 2, 3]))
    world.ledger.pods.remove(worker)
    (place,) = world.asks("train", attempt=2, gpus=2).placement
    assert place.node not in {"a", kept.node}


def test_a_drain_of_all_moves_movable_jobs_and_stops_the_others(world):
    runs(world, "small", "a", 0)
    runs(world, "rigid", "a", 1, movable=False)
    runs(world, "large", "a", 2, 3)
    runs(world, "other", "b", 0, 1, movable=False)
    maintain(world, "a", drain="All")
    moved = set(orders(world))
    assert moved in ({"uid-large/1"}, {"uid-small/1"})
    assert set(drained(world)) == {"uid-small/1", "uid-rigid/1", "uid-large/1"} - moved


def test_a_running_job_is_moved_only_to_nodes_that_its_template_allows():
    world = new_world()
    world.add_node("c", labels={"zone": "east"})
    template = {"spec": {"nodeSelector": {"zone": "east"}, "containers": [{"name": "worker"}]}}
    runs(world, "train", "a", 0, template=template)
    maintain(world, "a")
    (order,) = orders(world).values()
    assert [each.node for each in order.preemption.placement] == ["c"]


@pytest.mark.parametrize(
    "rules",
    [
        {"tolerations": [{"operator": "Sometimes"}]},
        {"tolerations": "none"},
        {"nodeSelector": {"x": "y" * (600 << 10)}},
    ],
    ids=["meaning", "type", "length"],
)
def test_a_job_with_unreadable_node_constraints_is_not_moved(world, rules):
    template = {"spec": {"containers": [], **rules}}
    runs(world, "train", "a", 0, template=template)
    maintain(world, "a")
    assert orders(world) == {}


def test_a_job_may_say_while_it_runs_that_it_is_movable(world):
    runs(world, "train", "a", 0, 1, movable=False)
    maintain(world, "a")
    assert orders(world) == {}
    shown = job("train", attempt=1, phase="Running", placed=[("a", (0, 1))], gpus=2, movable=True)
    world.ledger.jobs.upsert(shown)
    world.decide()
    assert set(orders(world)) == {"uid-train/1"}


@pytest.mark.parametrize(
    ("policy", "goes_to"), [("worst-fit", "c"), ("best-fit", "b"), ("of-tomorrow", "b")]
)
def test_a_job_is_moved_by_its_own_policy_if_that_is_known(world, policy, goes_to):
    world.add_node("c", gpus=4)
    runs(world, "other", "b", 0, movable=False)
    runs(world, "train", "a", 0, policy=policy)
    maintain(world, "a")
    (order,) = orders(world).values()
    assert [each.node for each in order.preemption.placement] == [goes_to]


def test_node_constraints_of_a_pending_job_are_not_stored(world):
    template = {"spec": {"nodeSelector": {"zone": "east"}, "containers": []}}
    shown = job("train", movable=True, template=template)
    assert bytes(shown.spec.template.rules) == b"{}"
    running = job(
        "train", attempt=1, phase="Running", placed=[("a", (0,))], movable=True, template=template
    )
    assert b"east" in bytes(running.spec.template.rules)


def revised(on, *numbers, name="train", since=FINISHED):
    """What the operator writes of a job that starts again on its own GPUs."""
    shown = job(name, attempt=1, phase="Running", placed=[(on, numbers)], gpus=len(numbers))
    victims = (Victims(reason="Revised", attempts=(f"uid-{name}/1",)),)
    return Preemption(since=since, victims=victims, placement=shown.status.placement)


def waits(world, name, **asked):
    return not hasattr(world.asks(name, **asked), "placement")


@pytest.mark.parametrize("restarted", [True, False])
def test_a_job_with_a_higher_revision_gets_its_own_gpus_before_the_queue_head(restarted):
    world = new_world()
    worker = runs(world, "train", "a", 0, 1, movable=False)
    runs(world, "other", "b", 0, 1, 2, 3, movable=False)
    assert waits(world, "large", gpus=4)
    if restarted:
        world = new_world()
        runs(world, "other", "b", 0, 1, 2, 3, movable=False)
        world.ledger.pods.upsert(worker)
    kept = revised("a", 0, 1)
    writes(world, "train", kept, movable=False)
    world.ledger.pods.remove(worker)
    assert waits(world, "large", gpus=4)
    assert waits(world, "three", gpus=3)
    assert world.asks("train", attempt=2, gpus=2).placement == kept.placement


def test_a_victim_keeps_no_gpus_by_a_higher_revision(world):
    """The preemption is written, and the operator has not acted on it yet."""
    worker = runs(world, "train", "a", 0, 1, 2, 3, movable=False)
    runs(world, "other", "b", 0, 1, 2, 3, movable=False)
    assert waits(world, "mine", gpus=4)
    running = world.owner.queue.state.running.get("uid-train/1")
    victim = Victim(running.job.id, PreemptionReason.PRIORITY, 0.0)
    decision = Preempt("uid-mine/1", (victim,), running.placements)
    world.owner.queue.reserve(decision, world.ledger.cluster, world.now)
    writes(world, "train", revised("a", 0, 1, 2, 3), movable=False, gpus=4)
    world.ledger.pods.remove(worker)
    world.decide()
    assert waits(world, "train", attempt=2, gpus=4)
    assert not waits(world, "mine", gpus=4)


def test_a_dropped_reservation_is_not_restored_when_the_object_changes(world):
    worker = runs(world, "train", "a", 0, 1, 2, 3, movable=False)
    runs(world, "other", "b", 0, 1, 2, 3, movable=False)
    kept = revised("a", 0, 1, 2, 3)
    writes(world, "train", kept, movable=False, gpus=4)
    world.ledger.pods.remove(worker)
    assert waits(world, "large", gpus=4)
    world.now += 10_000
    world.decide()
    writes(world, "train", kept, movable=False, gpus=4)
    assert not waits(world, "large", gpus=4)
