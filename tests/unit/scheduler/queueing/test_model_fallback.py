# SPDX-License-Identifier: Apache-2.0
"""GPUJobs whose models are an order of preference, from the plan API to the ledger."""

import msgspec
import pytest
from extender_builders import World, gpu_node, job, node, places, pod, whole

from gpupack_crds.plan import PlanRefusal, PlanResponse
from gpupack_scheduler.ledger.pending_job import PendingJob
from gpupack_scheduler.ledger.placed_job import PlacedJobSpec

A100 = "NVIDIA A100-SXM4-80GB"
ORDER = {"gpuModels": ["H100", "A100"], "gpuModelFallback": {"afterSeconds": 600}}


@pytest.fixture
def world():
    """`hop` has 2 H100, held by a job; `amp` has 2 A100."""
    built = World()
    built.add_node("hop", gpus=2)
    built.ledger.nodes.upsert(node("amp"))
    built.ledger.gpus.upsert(gpu_node("amp", gpus=2, model=A100))
    built.asks("holder", gpus=2, gpuModels=["H100"])
    built.written("holder")
    return built


def test_the_plan_comes_when_the_job_has_waited_for_its_first_model(world):
    answer = world.asks("train", since=1000, **ORDER)
    assert isinstance(answer, PlanRefusal)
    assert "it may use H100 now, and A100 from 1970-01-01T00:26:40Z" in answer.message
    assert "A100 later" in answer.lasting
    assert not answer.never
    assert world.owner.look_at <= 1600
    world.now = 1599.0
    assert isinstance(world.asks("train", since=1000, **ORDER), PlanRefusal)
    world.now = 1600.0
    (place,) = places(world.asks("train", since=1000, **ORDER))
    assert place.node == "amp"


def test_the_operator_is_notified_when_the_next_model_is_permitted(world):
    world.asks("train", since=1000, **ORDER)
    world.now = 1600.0
    world.decide()
    assert world.called() == ["train"]


def test_a_scheduler_that_starts_later_counts_the_time_from_the_same_moment(world):
    world.now = 1700.0
    (place,) = places(world.asks("train", since=1000, **ORDER))
    assert place.node == "amp"


def test_a_plan_on_the_first_model_stands_when_it_is_requested_again(world):
    world.ends("holder")
    first = world.asks("train", since=1000, **ORDER)
    again = world.asks("train", since=1000, **ORDER)
    assert isinstance(first, PlanResponse)
    assert again.placement == first.placement
    assert [each.node for each in first.placement] == ["hop"]


def test_a_running_job_moves_only_to_models_that_it_uses(world):
    world.ends("holder")
    shown = job("train", attempt=1, phase="Running", placed=[("hop", [0])], movable=True, **ORDER)
    world.ledger.jobs.upsert(shown)
    world.ledger.pods.upsert(
        pod("train-w", on="hop", devices=whole("hop", 0), worker=("train", 1, 0))
    )
    world.decide()
    running = world.owner.queue.state.running.get("uid-train/1")
    assert running.job.gang.roles[0].request.models == ("H100",)
    entry = {"reason": "fan", "drain": "Movable"}
    world.ledger.gpus.upsert(gpu_node("hop", gpus=2, maintenance=[entry]))
    world.decide()
    assert world.turns.orders.moves == ()


def test_a_job_that_becomes_movable_keeps_its_order(world):
    world.ends("holder")

    def shown(**spec):
        return job("train", attempt=1, phase="Running", placed=[("hop", [0])], **ORDER, **spec)

    world.ledger.jobs.upsert(shown())
    world.ledger.pods.upsert(
        pod("train-w", on="hop", devices=whole("hop", 0), worker=("train", 1, 0))
    )
    world.decide()
    world.ledger.jobs.upsert(shown(movable=True))
    world.decide()
    running = world.owner.queue.state.running.get("uid-train/1")
    assert running.job.movable
    assert running.job.gang.roles[0].request.models == ("H100",)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ({"afterSeconds": 600}, 600),
        ({"afterSeconds": 0}, 10),
        ({"afterSeconds": 1e12}, 31_536_000),
        ({"afterSeconds": "soon"}, None),
        ({"of a newer release": 1}, None),
    ],
)
def test_any_fallback_in_an_object_is_read(written, seconds):
    text = msgspec.json.encode({"gpuModelFallback": written})
    assert msgspec.json.decode(text, type=PlacedJobSpec).model_fallback_seconds == seconds


def test_a_pending_job_in_the_watch_has_the_order():
    shown = job("train", kind=PendingJob, **ORDER)
    assert shown.spec.model_fallback_seconds == 600
