# SPDX-License-Identifier: Apache-2.0
"""Standalone pods as victims and as preemptors."""

import dataclasses

import msgspec
import pytest
from extender_builders import World, gated, job, pod, whole

from gpupack_crds import names
from gpupack_crds.gpujob_status import Preemption
from gpupack_crds.kinds import GpuQuota
from gpupack_scheduler.ledger.placed_job import PlacedJob
from gpupack_scheduler.queueing.pending import gate
from gpupack_scheduler.queueing.settings import QueueSettings


@pytest.fixture
def world():
    """One node of 4 GPUs; `team` is promised 2 of them."""
    return new_world()


def new_world(**preemption):
    built = World()
    settings = {"preemption": {"minRunSeconds": 0, "victimTimeoutSeconds": 100} | preemption}
    built.decisions = dataclasses.replace(
        built.decisions, queue=msgspec.convert(settings, QueueSettings)
    )
    built.use(built.new_ledger())
    built.add_node("a")
    meta = {"name": "default", "namespace": "team", "uid": "q", "resourceVersion": "1"}
    spec = {"gpus": [{"model": "*", "nominal": 2}]}
    built.quotas.quotas.upsert(msgspec.convert({"metadata": meta, "spec": spec}, GpuQuota))
    return built


def guest(world, name, *numbers):
    """A pod of another namespace runs on these GPUs."""
    shown = pod(name, on="a", devices=whole("a", *numbers), gpus=len(numbers), namespace="guest")
    world.ledger.pods.upsert(shown)
    world.decide()
    world.now += 10
    return shown


def wants(world, name="mine", **changes):
    """A pod of `team` that waits, as it is written after each decision."""
    shown = gated(name, gpus=2, **changes)
    world.ledger.pods.upsert(shown)
    world.decide()
    return shown


def written(world, shown):
    """The watch shows the preemption that was recorded for the pod."""
    _, preemption = world.gates.recorded[-1]
    annotations = {names.PREEMPTION_ANNOTATION: gate.text_of(preemption)}
    metadata = msgspec.structs.replace(shown.metadata, annotations=annotations)
    annotated = msgspec.structs.replace(shown, metadata=metadata)
    world.ledger.pods.upsert(annotated)
    world.decide()
    return annotated


def evicted(world):
    return [(each.name, each.reason, each.why) for each in world.owner.evictions()]


def test_a_pod_that_borrows_is_evicted_for_a_job_that_reclaims_quota(world):
    guest(world, "web", 0, 1, 2, 3)
    preemption = world.asks("mine", gpus=2).preemption
    assert [each.attempts for each in preemption.victims] == [("pod/uid-web",)]
    assert evicted(world) == []
    shows(world, "mine", preemption)
    why = "for a job of another namespace, which reclaims its nominal quota"
    assert evicted(world) == [("web", "InCohortReclamation", why)]


def shows(world, name, preemption):
    """Show a pending GPUJob whose status records the preemption."""
    built = msgspec.to_builtins(job(name))
    built["status"]["preemption"] = msgspec.to_builtins(preemption)
    world.ledger.jobs.upsert(msgspec.json.decode(msgspec.json.encode(built), type=PlacedJob))
    world.decide()


def test_no_pod_is_evicted_where_pod_eviction_is_off():
    world = new_world(pods=False)
    guest(world, "web", 0, 1, 2, 3)
    assert world.asks("mine", gpus=2).preemption is None


def test_a_job_is_preempted_for_a_pod_only_after_that_is_recorded(world):
    world.asks("borrower", gpus=4, namespace="guest")
    world.written("borrower", namespace="guest")
    world.now += 10
    shown = wants(world)
    ((recorded, preemption),) = world.gates.recorded
    assert recorded.metadata.name == "mine"
    assert isinstance(preemption, Preemption)
    assert world.turns.orders.stops == ()
    written(world, shown)
    (stop,) = world.turns.orders.stops
    assert (stop.attempt, stop.pod) == ("uid-borrower/1", "mine")
    world.ends("borrower", namespace="guest")
    world.decide()
    assert [each.metadata.name for each, _ in world.gates.opened] == ["mine"]
    assert world.turns.orders.stops == ()


def test_a_pod_is_evicted_for_a_pod(world):
    web = guest(world, "web", 0, 1, 2, 3)
    shown = wants(world)
    written(world, shown)
    assert [name for name, _, _ in evicted(world)] == ["web"]
    world.ledger.pods.remove(web)
    world.decide()
    assert [each.metadata.name for each, _ in world.gates.opened] == ["mine"]


def test_gpus_are_reserved_for_the_pod_while_its_victims_terminate(world):
    web = guest(world, "web", 0, 1, 2, 3)
    written(world, wants(world))
    world.ledger.pods.remove(web)
    assert world.asks("thief", gpus=4, namespace="guest").preemption is None
    assert [each.metadata.name for each, _ in world.gates.opened] == ["mine"]


def test_a_preemption_that_is_not_written_in_time_is_over(world):
    guest(world, "web", 0, 1, 2, 3)
    wants(world)
    world.now += 11
    world.decide()
    assert [preemption is None for _, preemption in world.gates.recorded] == [False, True, False]


def test_a_deleted_pod_preempts_no_job(world):
    guest(world, "web", 0, 1, 2, 3)
    shown = written(world, wants(world))
    world.ledger.pods.remove(shown)
    world.decide()
    assert evicted(world) == []


def test_after_a_restart_the_annotation_of_the_pod_is_the_preemption(world):
    web = guest(world, "web", 0, 1, 2, 3)
    shown = written(world, wants(world))
    world.use(world.new_ledger())
    world.add_node("a")
    quota = new_world().quotas.quotas.items[("team", "default")]
    world.quotas.quotas.upsert(quota)
    world.ledger.pods.upsert(web)
    world.ledger.pods.upsert(shown)
    world.decide()
    assert world.gates.recorded == []
    assert [name for name, _, _ in evicted(world)] == ["web"]


def test_an_eviction_that_is_never_allowed_is_given_up(world):
    guest(world, "web", 0, 1, 2, 3)
    written(world, wants(world))
    world.now += 131
    world.decide()
    assert evicted(world) == []
    assert world.gates.recorded[-1][1] is None


@pytest.mark.parametrize(
    "annotation", ["", "rubbish", "[]", '{"since":3}', '{"victims":[{"x":1}]}']
)
def test_an_invalid_annotation_preempts_no_job(world, annotation):
    guest(world, "web", 0, 1, 2, 3)
    world.ledger.pods.upsert(
        gated("mine", gpus=2, annotations={names.PREEMPTION_ANNOTATION: annotation})
    )
    world.ledger.changes.on_change()
    world.owner.see()
    assert evicted(world) == []
