# SPDX-License-Identifier: Apache-2.0
"""GPU models in order of preference: a job waits for the first one, and later for more."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import A100, H100, node
from queue_world import PATIENT, World, limit, quota, with_rules

from gpupack_placement import DeviceUuid, Grant, MilliGpu, NodeName, Placement, Request
from gpupack_queue import NO_PREEMPTION, At, JobId, Preempt, Quotas, WaitReason, WhatIf
from gpupack_queue.pending.model_fallback import permitted_models
from gpupack_queue.queue import Queue

STEP = 600.0
CALM = with_rules(preemption=NO_PREEMPTION)
L4 = "NVIDIA L4"


def ordered(*models, gpus=1, step=STEP, **kw):
    return {
        "request": Request(gpus=gpus, models=models),
        "model_fallback_seconds": step,
    } | kw


def mixed(*, quotas=(), rules=CALM, h100=2, a100=2):
    """`hop` with H100 and `amp` with A100; nothing runs."""
    nodes = [node("hop", h100, model=H100), node("amp", a100, model=A100, memory=40_000)]
    return World(*nodes, quotas=quotas, rules=rules)


def busy(world, on="hop/0 hop/1", **kw):
    return world.runs("holder", on, tenant="other", **kw)


@pytest.mark.parametrize(
    ("waited", "permitted"),
    [(0, 1), (599.9, 1), (600, 2), (1199, 2), (1200, 3), (10**9, 3)],
)
def test_each_step_permits_one_more_model(waited, permitted):
    models = ("H100", "A100", "L4")
    found = permitted_models(models, [True] * 3, since=5.0, step_seconds=STEP, now=5.0 + waited)
    assert found.models == models[:permitted]
    assert found.following == models[permitted : permitted + 1]
    assert found.next_at == (5.0 + permitted * STEP if permitted < 3 else inf)


@pytest.mark.parametrize(
    ("can_start", "at_first", "then"),
    [
        ([False, True, True], ("H300", "H100"), ("A100",)),
        ([True, False, True], ("H300", "H100"), ("A100",)),
        ([True, True, False], ("H300",), ("H100", "A100")),
        ([False, False, True], ("H300", "H100", "A100"), ()),
        ([False, False, False], ("H300", "H100", "A100"), ()),
    ],
)
def test_a_model_that_can_never_serve_the_job_takes_no_step(can_start, at_first, then):
    models = ("H300", "H100", "A100")
    found = permitted_models(models, can_start, since=0.0, step_seconds=STEP, now=0.0)
    assert (found.models, found.following) == (at_first, then)
    assert set(found.skipped) == {
        model for model, can in zip(at_first, can_start, strict=False) if not can
    }


@given(
    can=st.lists(st.booleans(), min_size=2, max_size=8),
    since=st.floats(0, 1e9),
    step=st.floats(10, 1e6),
    waited=st.floats(0, 1e7),
)
def test_a_longer_wait_permits_no_fewer_models_and_a_step_is_taken_at_its_time(
    can, since, step, waited
):
    models = tuple(f"m{number}" for number in range(len(can)))

    def at(now):
        return permitted_models(models, can, since=since, step_seconds=step, now=now)

    found = at(since + waited)
    assert len(found.models) >= len(at(since).models) >= 1
    assert found.next_at > since + waited
    if found.next_at < inf:
        assert len(at(found.next_at).models) > len(found.models)
    assert at(found.later[-1][0] if found.later else since + waited).models == models


def test_the_job_waits_for_its_first_model_and_takes_the_second_when_it_has_waited():
    rules = with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=inf)
    world = busy(mixed(rules=rules)).submit("a", **ordered("H100", "A100"))
    world.decide()
    assert "a" not in world.running
    assert world.due_at == STEP
    world.decide(at=STEP - 1)
    assert "a" not in world.running
    world.decide(at=STEP)
    assert world.where["a"] == "amp/0"


def test_the_first_model_is_used_as_soon_as_it_is_free():
    world = busy(mixed()).submit("a", **ordered("H100", "A100")).decide()
    world.now = 100.0
    world.end("holder").decide()
    assert world.where["a"] == "hop/0"


def test_an_earlier_model_is_preferred_to_the_policys_choice():
    world = mixed().submit("a", **ordered("A100", "H100")).decide()
    assert world.where["a"] == "amp/0"
    free = mixed().submit("b", request=Request(gpus=1, models=("A100", "H100"))).decide()
    assert free.where["b"] == "hop/0"


def test_a_gang_takes_one_model_before_it_mixes_them():
    world = busy(mixed(h100=2, a100=2), "hop/0")
    world.submit("a", workers=2, **ordered("H100", "A100", gpus=1))
    world.decide().decide(at=STEP)
    assert world.where["a"] == "amp/0 amp/1"


def test_a_gang_that_fits_on_no_model_alone_mixes_them_at_once():
    world = mixed().submit("a", workers=4, **ordered("H100", "A100")).decide()
    assert set(world.where["a"].split()) == {"hop/0", "hop/1", "amp/0", "amp/1"}


def test_a_model_that_no_node_has_is_skipped_at_once_and_the_message_says_so():
    world = busy(mixed()).runs("other", "amp/0 amp/1")
    world.submit("a", **ordered("H300", "A100", "H100")).decide()
    wait = world.explain("a")
    assert wait.reason is WaitReason.DOES_NOT_FIT
    assert "does not wait for H300" in wait.message
    assert wait.models.models == ("H300", "A100")
    world.now = 1.0
    world.end("other").decide()
    assert world.where["a"] == "amp/0"


def test_a_model_that_the_quota_never_allows_is_skipped_at_once():
    of_a = quota("a", H100=limit(0, borrowing=0), A100=limit(1))
    world = mixed(quotas=[of_a]).submit("j", tenant="a", **ordered("H100", "A100")).decide()
    assert world.where["j"] == "amp/0"


def test_a_model_whose_quota_is_used_is_waited_for():
    of_a = quota("a", H100=limit(2, borrowing=0), A100=limit(2, borrowing=0))
    world = mixed(quotas=[of_a], h100=4)
    world.runs("own", "hop/0 hop/1", tenant="a")
    world.submit("j", tenant="a", **ordered("H100", "A100")).decide()
    assert "j" not in world.running
    world.decide(at=STEP)
    assert world.where["j"] == "amp/0"


def test_quotas_that_allow_several_models_are_tried_in_the_order_of_preference():
    of_a = quota("a", A100=limit(2, borrowing=0), H100=limit(1, borrowing=0), L4=limit(4))
    nodes = [node("hop", 4, model=H100), node("l", 4, model=L4), node("amp", 4, model=A100)]
    world = World(*nodes, quotas=[of_a], rules=CALM)
    world.runs("own", "hop/0", tenant="a")
    world.submit("j", tenant="a", **ordered("H100", "L4", "A100", step=10.0))
    world.decide().decide(at=100.0)
    assert world.where["j"] == "l/0"


def test_new_nodes_of_the_preferred_model_are_waited_for_from_then_on():
    world = World(node("amp", 2, model=A100), rules=CALM).runs("other", "amp/0 amp/1")
    world.submit("a", **ordered("H100", "A100")).decide()
    assert world.explain("a").models.models == ("H100", "A100")
    world.cluster.set_node(node("hop", 2, model=H100))
    world.queue.record_node_change("hop", world.cluster)
    world.decide(at=5.0)
    assert world.where["a"] == "hop/0"


def test_the_waiting_time_decides_and_not_the_queue_that_counts_it():
    world = busy(mixed()).submit("a", **ordered("H100", "A100")).decide()
    twin = Queue(CALM, Quotas())
    twin.start(world.jobs["holder"], world.running["holder"], world.cluster, 0.0)
    twin.submit(world.jobs["a"], 0.0)
    later = twin.cycle(world.cluster, STEP + 5, world.plan)
    assert [str(each.job) for each in later.admitted] == ["a"]
    world.decide(at=STEP + 5)
    assert world.where["a"] == "amp/0"


def test_a_preempted_job_waits_for_its_first_model_again():
    world = busy(mixed()).submit("a", **ordered("H100", "A100")).decide().decide(at=STEP)
    world.now = 2 * STEP
    world.end("a")
    world.queue.submit(world.jobs["a"], world.now)
    world.decide()
    assert "a" not in world.running
    assert world.explain("a").models.models == ("H100",)


def test_no_job_is_preempted_on_a_later_model_before_its_time():
    world = mixed(quotas=[quota("a", 2), quota("b", 2)], rules=PATIENT)
    world.runs("hop", "hop/0 hop/1", tenant="a").runs("amp", "amp/0 amp/1", tenant="c")
    world.submit("j", tenant="b", **ordered("H100", "A100")).decide()
    assert world.log == []
    world.decide(at=STEP)
    assert world.log[0] == "j stops amp"


def test_a_preemptor_takes_no_later_model_while_its_victims_end():
    rules = PATIENT
    world = World(
        node("hop", 1, model=H100),
        node("amp", 1, model=A100),
        quotas=[quota("b", 1)],
        rules=rules,
        grace=30.0,
    )
    world.runs("hop", "hop/0", tenant="a").runs("amp", "amp/0", tenant="d")
    world.submit("j", tenant="b", **ordered("H100", "A100")).decide()
    assert world.log == ["j stops hop"]
    world.now = 10.0
    world.end("amp").decide()
    assert "j" not in world.running
    world.decide(at=30.0)
    assert world.where["j"] == "hop/0"


def test_reserved_places_of_a_later_model_are_used_although_the_wait_begins_again():
    world = mixed(h100=1, a100=2)
    world.runs("holder", "hop/0").submit("a", movable=True, **ordered("H100", "A100"))
    world.decide().decide(at=STEP)
    assert world.where["a"] == "amp/0"
    world.now = STEP + 100
    world.maintain("amp/0").decide()
    assert world.where["a"] == "amp/1"


def test_places_that_were_written_for_a_job_are_used_although_its_wait_begins_again():
    world = busy(mixed()).submit("a", **ordered("H100", "A100"))
    grant = Grant(DeviceUuid("amp/1"), MilliGpu(1000), 40_000)
    places = (Placement(NodeName("amp"), (grant,)),)
    world.queue.reserve(Preempt(JobId("a"), (), places), world.cluster, 0.0)
    assert world.explain("a").models.models == ("H100",)
    world.decide()
    assert world.where["a"] == "amp/1"


def test_a_running_job_moves_to_no_model_for_which_it_has_not_waited():
    world = mixed(h100=1).submit("a", movable=True, **ordered("H100", "A100")).decide()
    assert world.where["a"] == "hop/0"
    world.maintain("hop/0").decide(at=10.0)
    assert world.where["a"] == "hop/0"
    assert world.log == ["a starts"]


def test_an_elastic_gang_grows_on_models_for_which_it_has_waited():
    world = mixed(h100=1, a100=4)
    world.submit("a", extra_workers=3, **ordered("H100", "A100")).decide().decide(at=1000.0)
    assert world.where == {"a": "hop/0"}


def test_the_reservation_follows_the_step():
    rules = with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=0)
    world = mixed(rules=rules).runs("h", "hop/0 hop/1", duration=10_000.0)
    world.runs("x", "amp/0 amp/1", duration=5_000.0)
    world.cluster.set_node(node("l", 1, model=L4))
    world.submit("a", **ordered("H100", "A100")).submit("b", gpus=1).decide()
    (reservation,) = [r for r in world.queue.state.backfill_reservations if r.job.id == "a"]
    assert reservation.start_at == 10_000
    world.submit("c", gpus=1).decide(at=STEP - 1)
    world.end("b").decide(at=STEP)
    (reservation,) = [r for r in world.queue.state.backfill_reservations if r.job.id == "a"]
    assert reservation.start_at == 5_000


def test_the_start_estimate_uses_the_later_model_from_its_time_on():
    world = mixed().runs("h", "hop/0 hop/1", duration=10_000.0)
    world.submit("a", **ordered("H100", "A100")).decide()
    wait = world.explain("a")
    assert wait.start == At(STEP, is_estimated=True)
    assert "it may use H100 now, and A100 from 1970-01-01T00:10:00Z" in wait.message
    assert "A100 later" in wait.message_without_times


def test_a_start_before_the_step_is_estimated_with_the_first_model():
    world = mixed().runs("h", "hop/0 hop/1", duration=300.0)
    world.submit("a", **ordered("H100", "A100")).decide()
    assert world.explain("a").start.at == 300.0


def test_jobs_of_one_request_in_different_steps_fail_separately():
    world = busy(mixed()).submit("old", **ordered("H100", "A100")).decide()
    world.now = 500.0
    world.submit("new", **ordered("H100", "A100")).decide().decide(at=STEP)
    assert "old" in world.running
    assert "new" not in world.running
    assert world.explain("new").models.models == ("H100",)


def test_what_if_answers_for_the_models_of_a_job_that_has_not_waited():
    world = busy(mixed())
    queue, cluster = world.queue.copy(max_reservations=4), world.cluster.fork()
    question = WhatIf(queue, cluster, world.plan, 0.0)
    question.settle()
    world.submit("a", **ordered("H100", "A100"))
    found = question.answer(world.jobs["a"])
    assert found.models.models == ("H100",)
    assert found.models.next_at == STEP


def test_what_if_does_not_change_the_steps_of_the_queue():
    world = busy(mixed()).submit("a", **ordered("H100", "A100")).decide()
    queue = world.queue.copy(max_reservations=4)
    queue.cycle(world.cluster.fork(), 10 * STEP, world.plan)
    assert queue.state.fallbacks.permitted(JobId("a")).models == ("H100", "A100")
    assert world.queue.state.fallbacks.permitted(JobId("a")).models == ("H100",)


def test_without_a_fallback_all_models_are_permitted_from_the_start():
    world = busy(mixed()).submit("a", request=Request(gpus=1, models=("H100", "A100")))
    world.decide()
    assert world.where["a"] == "amp/0"
    assert not world.queue.state.fallbacks


def test_jobs_that_leave_early_leave_no_steps_behind():
    world = busy(mixed())
    for number in range(1000):
        world.submit(f"j{number}", **ordered("H100", "A100")).decide()
        world.queue.withdraw(JobId(f"j{number}"), world.cluster)
    assert len(world.queue.state.fallbacks._steps) <= 100
    assert not world.queue.state.fallbacks._single


@given(data=st.data())
def test_a_job_never_starts_on_a_model_before_its_time(data):
    world = mixed(rules=CALM)
    for at in sorted(data.draw(st.lists(st.integers(0, 3000), max_size=12))):
        world.now = float(at)
        if world.running and data.draw(st.booleans()):
            world.end(data.draw(st.sampled_from(sorted(world.running))))
        else:
            order = data.draw(st.permutations(["H100", "A100"]))
            world.submit(f"j{len(world.jobs)}", **ordered(*order, gpus=2, step=200.0))
        world.decide()
        assert world.due_at is None or world.due_at > world.now
        for name, where in world.where.items():
            job = world.jobs[name]
            first = {"H100": "hop", "A100": "amp"}[job.gang.roles[0].request.models[0]]
            if not where.startswith(first):
                started = world.queue.state.running.get(JobId(name)).started
                assert started >= job.submitted + 200.0
