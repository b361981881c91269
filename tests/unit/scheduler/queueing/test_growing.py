# SPDX-License-Identifier: Apache-2.0
"""Elastic gangs: extra workers get places, which are written down before anything runs there."""

import dataclasses

import msgspec
import pytest
from extender_builders import World, as_bound, gpu_node, job, places, plan_request, pod, whole

from gpupack_crds.placement import by_node, by_worker
from gpupack_crds.plan import PlanRefusal, PlanResponse
from gpupack_extender.unconfirmed_writes import judge_plan
from gpupack_scheduler.errors import BindRefused, RequestMismatch
from gpupack_scheduler.ledger.ledger import Outcome
from gpupack_scheduler.ledger.placed_job import PlacedJob
from gpupack_scheduler.queueing.settings import QueueSettings

GROW_AFTER = 60.0


@pytest.fixture
def world():
    """Two nodes of 4 GPUs; gangs grow after a minute."""
    return new_world()


def new_world():
    built = World()
    queue = QueueSettings(grow_after_seconds=GROW_AFTER)
    built.decisions = dataclasses.replace(built.decisions, queue=queue)
    built.use(built.new_ledger())
    for name in ("a", "b"):
        built.add_node(name)
    return built


def asks(world, name="train", *, least=2, workers=4, **asked):
    return world.asks(name, workers=workers, minWorkers=least, **asked)


def shown(name, placement, *, workers=4, least=2, attempt=1, phase="Running", **spec):
    """The GPUJob as the watch shows it with this placement."""
    built = job(name, attempt=attempt, phase=phase, workers=workers, minWorkers=least, **spec)
    raw = msgspec.to_builtins(built)
    raw["status"]["placement"] = msgspec.to_builtins(placement)
    return msgspec.json.decode(msgspec.json.encode(raw), type=PlacedJob)


def writes(world, answer, name="train", *, but=(), **changes):
    """The operator writes what was answered, but for these workers."""
    kept = (each for each in by_worker(answer.placement) if each.worker not in but)
    placement = by_node(kept)
    world.ledger.jobs.upsert(shown(name, placement, **changes))
    world.decide()
    return placement


def grows(world, name="train"):
    """What the operator is answered when it asks for the places of an attempt that runs."""
    request = msgspec.structs.replace(
        plan_request(name, workers=4, minWorkers=2, version="7"), grows=True
    )
    return world.plan(request)


def orders(world):
    return world.turns.orders.grows


def workers(answer):
    return [each.worker for each in by_worker(answer.placement)]


def ids(world):
    return sorted(each.job.id for each in world.owner.queue.state.running)


def wide_after_a_while(world):
    """Admit a gang of 2 that grows when another job ends."""
    other = world.asks("other", workers=6)
    world.written("other")
    answer = asks(world)
    writes(world, answer)
    world.ends("other")
    world.decide()
    assert len(by_worker(other.placement)) == 6
    world.now += GROW_AFTER
    world.decide()
    return answer


def test_a_starting_gang_gets_gpus_for_as_many_workers_as_fit(world):
    world.asks("other", workers=5)
    world.written("other")
    assert workers(asks(world)) == [0, 1, 2]
    assert ids(world) == ["uid-other/1", "uid-train/1", "uid-train/1+1"]


def test_an_elastic_gang_waits_until_its_minimum_fits(world):
    world.asks("other", workers=7)
    world.written("other")
    assert isinstance(asks(world), PlanRefusal)


def test_extra_workers_in_the_plan_of_a_gang_are_not_ordered_again(world):
    writes(world, asks(world))
    assert orders(world) == ()
    assert world.states() == ["written"] * 4


def test_asking_again_for_a_plan_with_extra_workers_gives_the_same(world):
    assert places(asks(world)) == places(asks(world))


def test_gpus_of_more_workers_are_held_and_the_operator_is_notified(world):
    wide_after_a_while(world)
    assert orders(world) == ("uid-train/1",)
    assert world.states() == ["planned", "planned", "written", "written"]


def test_before_the_calm_time_is_over_nothing_is_held(world):
    wide_after_a_while(world)
    writes(world, grows(world))
    world.now += 1
    writes(world, grows(world), but={3})
    world.now += GROW_AFTER - 1
    world.decide()
    assert orders(world) == ()


def test_a_growing_gang_gets_its_old_places_unchanged_and_the_new_ones(world):
    before = wide_after_a_while(world)
    answer = grows(world)
    assert workers(answer) == [0, 1, 2, 3]
    assert places(answer)[:2] == places(before)


def test_recorded_extra_workers_are_not_ordered_again(world):
    wide_after_a_while(world)
    writes(world, grows(world))
    assert orders(world) == ()
    assert ids(world) == ["uid-train/1", "uid-train/1+1", "uid-train/1+2"]
    assert world.states() == ["written"] * 4


def test_another_write_to_the_gpujob_does_not_give_away_what_is_held(world):
    before = wide_after_a_while(world)
    writes(world, before)
    assert world.states().count("planned") == 2


def test_gpus_of_extra_workers_that_are_not_claimed_in_time_are_free_again(world):
    before = wide_after_a_while(world)
    world.now += world.decisions.plan_hold_seconds + 1
    (plan,) = world.ledger.overdue_plans()
    outcome = judge_plan(shown("train", before.placement), plan, may_land=True)
    assert outcome is Outcome.NOT_LANDED
    world.ledger.settle_plan(plan, outcome)
    world.decide()
    assert (world.states(), orders(world)) == (["written"] * 2, ())


def test_gpus_of_an_unconfirmed_status_write_are_held(world):
    before = wide_after_a_while(world)
    grows(world)
    world.now += world.decisions.plan_hold_seconds + 1
    (plan,) = world.ledger.overdue_plans()
    read = shown("train", before.placement)
    same = msgspec.structs.replace(read.metadata, resource_version="7")
    assert judge_plan(msgspec.structs.replace(read, metadata=same), plan, may_land=True) is (
        Outcome.UNKNOWN
    )
    later = msgspec.structs.replace(read.metadata, resource_version="8")
    assert judge_plan(msgspec.structs.replace(read, metadata=later), plan, may_land=True) is (
        Outcome.NOT_LANDED
    )


def test_gpus_of_a_write_that_the_watch_has_not_shown_are_held(world):
    wide_after_a_while(world)
    answer = grows(world)
    world.now += world.decisions.plan_hold_seconds + 1
    (plan,) = world.ledger.overdue_plans()
    assert judge_plan(shown("train", answer.placement), plan, may_land=False) is Outcome.LANDED


def test_a_request_to_grow_beyond_the_free_gpus_does_not_wait(world):
    world.asks("other", workers=6)
    world.written("other")
    writes(world, asks(world))
    assert workers(grows(world)) == [0, 1]
    world.ends("train")
    world.decide()
    assert isinstance(grows(world), PlanRefusal)
    assert not len(world.owner.observed)


def test_an_extra_worker_ends_for_a_job_that_waits_and_is_named_by_its_number(world):
    writes(world, asks(world, workers=8, least=4), workers=8, least=4)
    answer = world.asks("urgent", workers=3)
    assert isinstance(answer, PlanRefusal)
    (victims,) = answer.preemption.victims
    assert victims.reason == "ElasticScaleDown"
    assert len(victims.attempts) == 3
    assert set(victims.attempts) <= {f"uid-train/1+{number}" for number in (1, 2, 3, 4)}


def test_a_pending_job_gets_the_gpus_once_the_worker_is_out_of_the_status(world):
    answer = asks(world, workers=8, least=4)
    writes(world, answer, workers=8, least=4)
    (victims,) = world.asks("urgent", workers=1).preemption.victims
    (victim,) = victims.attempts
    index = 3 + int(victim.rpartition("+")[2])
    writes(world, answer, workers=8, least=4, but={index})
    assert world.called()[-1] == "urgent"
    assert isinstance(world.asks("urgent", workers=1), PlanResponse)


def test_until_its_pod_is_gone_a_worker_that_is_to_end_counts(world):
    answer = asks(world, workers=8, least=7)
    writes(world, answer, workers=8, least=7)
    bound = world.bind(extra_pod(7), by_worker(answer.placement)[7].node)
    world.asks("urgent", workers=1)
    writes(world, answer, workers=8, least=7, but={7})
    assert ids(world) == ["uid-train/1", "uid-train/1+1"]
    world.ledger.pods.remove(bound)
    world.decide()
    assert ids(world) == ["uid-train/1", "uid-urgent/1"]


def extra_pod(index, *, attempt=1, owner=None, **changes):
    """The pod of an extra worker's own Job, as the Job controller makes it."""
    asking = pod(f"w{index}", worker=("train", attempt, index), **changes)
    name = owner or f"train-{attempt}-x{index}"
    (reference,) = asking.metadata.owner_references
    owned = msgspec.structs.replace(reference, name=name)
    meta = msgspec.structs.replace(asking.metadata, owner_references=(owned,))
    return msgspec.structs.replace(asking, metadata=meta)


def test_a_pod_of_an_extra_worker_goes_only_to_its_recorded_placement(world):
    answer = asks(world)
    writes(world, answer)
    place = by_worker(answer.placement)[3]
    other = "b" if place.node == "a" else "a"
    with pytest.raises(BindRefused):
        world.reserve(extra_pod(3), other)
    claim = world.reserve(extra_pod(3), place.node)
    assert {grant.uuid for grant in claim.placement.devices} == {d.uuid for d in place.devices}


def test_a_pod_of_an_extra_worker_without_a_placement_is_refused(world):
    answer = asks(world)
    writes(world, answer)
    writes(world, answer, but={3})
    with pytest.raises(BindRefused, match="no place for worker 3"):
        world.reserve(extra_pod(3), "a")


def test_a_pod_of_an_earlier_attempt_is_refused(world):
    answer = asks(world)
    writes(world, answer, attempt=2)
    with pytest.raises(BindRefused, match="no place for worker 3"):
        world.reserve(extra_pod(3), by_worker(answer.placement)[3].node)


def test_a_pod_that_requests_more_than_its_placement_is_refused(world):
    answer = asks(world)
    writes(world, answer)
    with pytest.raises(RequestMismatch):
        world.reserve(extra_pod(3, gpus=2), by_worker(answer.placement)[3].node)


def test_the_job_of_one_worker_is_no_other_worker_s(world):
    writes(world, asks(world))
    forged = extra_pod(3, owner="train-1-x2")
    world.ledger.pods.upsert(
        msgspec.structs.replace(forged, spec=msgspec.structs.replace(forged.spec, node_name="a"))
    )
    world.decide()
    assert ids(world) == ["pod/uid-w3", "uid-train/1", "uid-train/1+1", "uid-train/1+2"]


def test_after_a_restart_gang_and_extra_workers_run_as_they_did(world):
    answer = asks(world)
    placement = writes(world, answer)
    again = new_world()
    pods = [extra_pod(each.worker) for each in by_worker(answer.placement) if each.worker >= 2]
    for each in pods:
        claim = world.reserve(each, by_worker(placement)[int(each.metadata.name[1:])].node)
        again.ledger.pods.upsert(as_bound(each, claim))
    again.ledger.jobs.upsert(shown("train", placement))
    again.decide()
    assert ids(again) == ["uid-train/1", "uid-train/1+1", "uid-train/1+2"]
    running = {each.job.id: each.job for each in again.owner.queue.state.running}
    assert running["uid-train/1"].extra_workers == 2
    assert running["uid-train/1+2"].extends == "uid-train/1"


@pytest.mark.parametrize(("models", "extra"), [((), 2), (("B200",), 0)])
def test_after_a_restart_a_gang_grows_only_to_gpus_that_its_spec_lets_it(world, models, extra):
    placement = writes(world, asks(world), but={2, 3})
    again = new_world()
    again.ledger.jobs.upsert(shown("train", placement, gpuModels=models))
    again.decide()
    again.now += GROW_AFTER
    again.decide()
    assert len(ids(again)) == 1 + extra


def test_after_a_restart_a_gang_that_was_to_shrink_still_is(world):
    answer = asks(world, workers=8, least=4)
    placement = writes(world, answer, workers=8, least=4)
    preemption = world.asks("urgent", workers=3).preemption
    again = new_world()
    again.ledger.jobs.upsert(shown("train", placement, workers=8, least=4))
    waiting = msgspec.to_builtins(job("urgent", workers=3))
    waiting["status"]["preemption"] = msgspec.to_builtins(preemption)
    again.ledger.jobs.upsert(msgspec.json.decode(msgspec.json.encode(waiting), type=PlacedJob))
    again.decide()
    assert isinstance(again.asks("urgent", workers=3), PlanRefusal)
    assert set(again.owner.queue.state.running_victims()) == set(preemption.victims[0].attempts)


def test_extra_workers_that_outlive_their_gang_count_until_they_are_gone(world):
    answer = asks(world)
    writes(world, answer)
    bound = world.bind(extra_pod(3), by_worker(answer.placement)[3].node)
    world.ledger.jobs.upsert(shown("train", (), phase="Succeeded"))
    world.decide()
    assert ids(world) == ["uid-train/1+2"]
    world.ledger.pods.remove(bound)
    world.decide()
    assert ids(world) == []


def test_a_restarted_queue_counts_the_gang_and_its_extra_workers(world):
    writes(world, asks(world))
    world.owner.restart()
    world.decide()
    assert ids(world) == ["uid-train/1", "uid-train/1+1", "uid-train/1+2"]


def test_a_maintenance_ends_the_extra_workers_there_until_they_are_out_of_the_status(world):
    answer = asks(world)
    writes(world, answer)
    entry = {"reason": "fan", "drain": "All"}
    for name in ("a", "b"):
        world.ledger.gpus.upsert(gpu_node(name, maintenance=[entry]))
    world.decide()
    drained = [each.attempt for each in world.turns.orders.drained]
    assert drained == ["uid-train/1", "uid-train/1+1", "uid-train/1+2"]
    writes(world, answer, but={2})
    assert "uid-train/1+1" not in [each.attempt for each in world.turns.orders.drained]


def test_a_forged_worker_counts_in_addition_to_the_gang(world):
    writes(world, asks(world))
    world.ledger.pods.upsert(extra_pod(5, on="b", devices=whole("b", 3)))
    world.decide()
    assert "pod/uid-w5" in ids(world)


def test_an_extra_worker_does_not_start_on_a_node_that_entered_maintenance(world):
    """As after an operator was killed that had not asked yet."""
    answer = wide_after_a_while(world)
    assert orders(world) == ("uid-train/1",)
    place = by_worker(grows(world).placement)[2]
    world.ledger.gpus.upsert(
        gpu_node(place.node, maintenance=[{"reason": "fan", "drain": "Never"}])
    )
    found = grows(world)
    assert place.node not in {each.node for each in by_worker(found.placement)[2:]}
    assert workers(found)[:2] == workers(answer)
    world.owner.see()
    assert ids(world) == ["uid-train/1"]
