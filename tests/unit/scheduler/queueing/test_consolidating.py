# SPDX-License-Identifier: Apache-2.0
"""Movable jobs move for another job: the preemptor is recorded first, then each move."""

import dataclasses

import msgspec
import pytest
from extender_builders import World, job, pod, whole
from prometheus_client.registry import CollectorRegistry

from gpupack_crds.kinds import GpuQuota
from gpupack_crds.plan import PlanRefusal, PlanResponse
from gpupack_extender.metrics import ConsolidationCollector
from gpupack_scheduler.ledger.placed_job import PlacedJob
from gpupack_scheduler.queueing.settings import QueueSettings

FINISHED = "1970-01-01T00:16:40Z"
SETTINGS = {
    "reserveAfterSeconds": 0,
    "consolidation": {"ratio": 1, "minWaitSeconds": 0, "cooldownSeconds": 0},
}


def new_world():
    """Two nodes of 4 GPUs."""
    built = World()
    settings = msgspec.convert(SETTINGS, QueueSettings)
    built.decisions = dataclasses.replace(built.decisions, queue=settings)
    built.use(built.new_ledger())
    for name in ("a", "b"):
        built.add_node(name)
    return built


def runs(world, name, on, *numbers, movable=True, namespace="team"):
    """A GPUJob runs on these GPUs."""
    spec = {"gpus": len(numbers), "movable": movable, "namespace": namespace}
    shown = job(name, attempt=1, phase="Running", placed=[(on, numbers)], **spec)
    world.ledger.jobs.upsert(shown)
    worker = pod(
        f"{name}-w", on=on, devices=whole(on, *numbers), worker=(name, 1, 0), namespace=namespace
    )
    world.ledger.pods.upsert(worker)
    world.decide()
    return worker


@pytest.fixture
def world():
    """Two jobs of 2 GPUs, one on each node, and 2 GPUs are free on both."""
    built = new_world()
    half_full(built)
    return built


def half_full(world):
    world.workers = {"one": runs(world, "one", "a", 0, 1), "two": runs(world, "two", "b", 0, 1)}


def orders(world):
    return {each.attempt: each for each in world.turns.orders.moves}


def shows_head(world, preemption, name="large"):
    """Show the pending job with the preemption that the operator recorded."""
    built = msgspec.to_builtins(job(name, gpus=4))
    built["status"]["preemption"] = msgspec.to_builtins(preemption) if preemption else None
    world.ledger.jobs.upsert(msgspec.json.decode(msgspec.json.encode(built), type=PlacedJob))
    world.decide()


def writes(world, name, preemption):
    """The watch shows the status with which the operator ends the attempt."""
    built = msgspec.to_builtins(job(name, attempt=1, phase="Pending", gpus=2, movable=True))
    built["status"] |= {
        "preemption": msgspec.to_builtins(preemption),
        "attempts": [{"number": 1, "finishedAt": FINISHED, "outcome": "Moved"}],
    }
    world.ledger.jobs.upsert(msgspec.json.decode(msgspec.json.encode(built), type=PlacedJob))
    world.decide()


def decided(world, name="large", **asked):
    """Return the answer once the queue has estimated the start without moves, a cycle later."""
    asked = {"gpus": 4} | asked
    world.asks(name, **asked)
    world.decide()
    world.decide()
    refusal = world.asks(name, **asked)
    assert isinstance(refusal, PlanRefusal)
    return refusal.preemption


def consolidates(world):
    """Its preemption, written; the order to move."""
    preemption = decided(world)
    shows_head(world, preemption)
    (order,) = orders(world).values()
    return preemption, order


def test_the_answer_names_the_moved_jobs_the_cost_and_the_gain(world):
    preemption = decided(world)
    (victims,) = preemption.victims
    assert victims.reason == "Consolidation"
    assert victims.attempts in (("uid-one/1",), ("uid-two/1",))
    assert preemption.gained_gpu_seconds == 4 * 3600
    assert preemption.lost_gpu_seconds == 2 * 60


def test_no_job_is_moved_before_the_preemptor_is_recorded(world):
    preemption = decided(world)
    world.decide()
    assert orders(world) == {}
    shows_head(world, preemption)
    (order,) = orders(world).values()
    assert order.preemption.victims[0].reason == "Consolidation"
    assert order.cause == "large"
    assert order.node in {"a", "b"}
    assert world.turns.orders.stops == world.turns.orders.drained == ()


def test_both_jobs_run_on_their_reserved_gpus(world):
    preemption, order = consolidates(world)
    name = order.attempt.partition("/")[0].removeprefix("uid-")
    writes(world, name, order.preemption)
    assert orders(world) == {}
    assert isinstance(world.asks("thief", gpus=2), PlanRefusal)
    world.ledger.pods.remove(world.workers[name])
    large = world.asks("large", gpus=4)
    assert isinstance(large, PlanResponse)
    assert large.placement == preemption.placement
    moved = world.asks(name, attempt=2, gpus=2, movable=True)
    assert moved.placement == order.preemption.placement


def test_a_job_of_another_namespace_has_no_name_in_the_order():
    world = new_world()
    for name, node in (("one", "a"), ("two", "b")):
        runs(world, name, node, 0, 1, namespace="other")
    promised = {"metadata": {"name": "q", "namespace": "team", "uid": "q", "resourceVersion": "1"}}
    spec = {"gpus": [{"model": "*", "nominal": 4}]}
    world.quotas.quotas.upsert(msgspec.convert({**promised, "spec": spec}, GpuQuota))
    shows_head(world, decided(world))
    (order,) = orders(world).values()
    assert order.cause == "a job of another namespace"


def test_no_job_is_moved_for_a_namespace_with_a_larger_share():
    """As in KAI-Scheduler#1565: the moved job keeps its usage and has the smaller share."""
    world = new_world()
    for name, node in (("one", "a"), ("two", "b")):
        runs(world, name, node, 0, namespace="other")
    assert decided(world) is None


def test_a_queue_head_that_is_not_recorded_in_time_moves_no_job(world):
    assert decided(world)
    world.now += world.decisions.plan_hold_seconds + 1
    world.owner.decide()
    assert orders(world) == {}
    assert not [j for j in world.owner.queue.state.reserved if j.startswith("uid-one")]


def test_a_queue_head_that_is_deleted_before_a_move_is_recorded_moves_no_job(world):
    consolidates(world)
    world.ledger.jobs.remove(job("large"))
    world.decide()
    assert orders(world) == {}
    assert world.owner.queue.state.reserved == {}


def test_all_moves_expire_if_one_is_not_recorded_in_time(world):
    _, order = consolidates(world)
    world.now += world.decisions.plan_hold_seconds + 1
    world.owner.decide()
    assert order.attempt not in orders(world)
    assert world.owner.queue.state.stuck == {}


@pytest.mark.parametrize("written", ["head", "head and move"])
def test_a_restarted_process_continues_the_recorded_moves(world, written):
    preemption, order = consolidates(world)
    name = order.attempt.partition("/")[0].removeprefix("uid-")
    after = new_world()
    after.decisions = dataclasses.replace(
        after.decisions, queue=msgspec.structs.replace(after.decisions.queue, consolidation=OFF)
    )
    after.use(after.new_ledger())
    for node in ("a", "b"):
        after.add_node(node)
    half_full(after)
    if written == "head and move":
        writes(after, name, order.preemption)
    shows_head(after, preemption)
    found = after.asks("large", gpus=4)
    if written == "head":
        assert found.preemption is None
        assert after.owner.queue.state.reserved == {}
        assert orders(after) == {}
        return
    assert found.preemption.placement == preemption.placement
    after.ledger.pods.remove(after.workers[name])
    assert after.asks("large", gpus=4).placement == preemption.placement
    assert after.asks(name, attempt=2, gpus=2).placement == order.preemption.placement


OFF = msgspec.convert({}, QueueSettings).consolidation


def test_without_a_ratio_no_job_is_moved_for_another(world):
    assert not QueueSettings().as_rules().consolidation.any


def test_metrics_say_what_was_moved_and_gained(world):
    registry = CollectorRegistry()
    registry.register(ConsolidationCollector(world.owner.observed.operations.consolidations))
    consolidates(world)
    prefix = "gpupack_extender_consolidation"
    assert registry.get_sample_value(f"{prefix}s_total") == 1
    assert registry.get_sample_value(f"{prefix}_moves_total") == 1
    assert registry.get_sample_value(f"{prefix}_lost_gpu_seconds_total") == pytest.approx(120)
    assert registry.get_sample_value(f"{prefix}_gained_gpu_seconds_total") == pytest.approx(14400)
