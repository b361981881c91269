# SPDX-License-Identifier: Apache-2.0
"""Elastic gangs take GPUs that no other job can use, and release them as soon as one can."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import node
from placement_strategies import cases
from queue_strategies import TENANTS, asks, worlds
from queue_world import World, limit, quota, used, with_rules, within_limits

from gpupack_devices.errors import InvalidRequest
from gpupack_placement import Gang, Request, Spread
from gpupack_queue import NO_PREEMPTION, Job, JobId, PreemptionReason, Wait, extra_worker

CALM = with_rules(grow_after_seconds=10.0)
CALM_WITHOUT_PREEMPTION = with_rules(
    grow_after_seconds=10.0, preemption=NO_PREEMPTION, by_share=False
)


def world_of(*gpus, **kw):
    return World(*(node(f"n{n}", of) for n, of in enumerate(gpus)), **({"rules": CALM} | kw))


def width(world, name):
    extra_workers = [each for each in world.running if each.startswith(f"{name}+")]
    return len(world.running.get(name, ())) + len(extra_workers)


def test_an_elastic_gang_starts_with_as_many_workers_as_fit():
    world = world_of(4).submit("a", workers=2, extra_workers=6).decide()
    assert width(world, "a") == 4
    assert world.log[0] == "a starts"


def test_an_elastic_gang_never_exceeds_its_requested_workers():
    assert width(world_of(8).submit("a", extra_workers=2).decide(), "a") == 3


def test_an_elastic_gang_waits_until_its_minimum_fits():
    world = (
        world_of(4).runs("other", "n0/0 n0/1 n0/2").submit("a", workers=2, extra_workers=2).decide()
    )
    assert width(world, "a") == 0


def test_a_pending_job_goes_before_the_extra_workers_of_a_starting_gang():
    world = world_of(4).submit("a", extra_workers=7).submit("b", 2).decide()
    assert "b" in world.running
    assert width(world, "a") == 2


def test_an_elastic_gang_grows_only_after_a_calm_time():
    world = world_of(4).runs("other", "n0/2 n0/3").submit("a", workers=2, extra_workers=2).decide()
    world.end("other").decide(at=5)
    assert width(world, "a") == 2
    assert world.due_at == 10
    assert width(world.decide(at=10), "a") == 4


def test_an_elastic_gang_does_not_grow_within_the_calm_time_after_it_shrank():
    world = world_of(4).submit("a", workers=2, extra_workers=2).decide()
    world.submit("b", 2).decide(at=20)
    assert width(world, "a") == 2
    world.end("b").decide(at=21)
    assert width(world, "a") == 2
    assert width(world.decide(at=30), "a") == 4


def test_an_elastic_gang_shrinks_only_by_what_another_job_needs():
    world = world_of(4, 4).submit("a", workers=2, extra_workers=6).decide()
    world.submit("b", 1, "other").decide(at=1)
    assert width(world, "a") == 7
    assert [line for line in world.log if "stops" in line] == [world.log[-2]]


def test_an_elastic_gang_shrinks_even_if_preemption_is_off():
    world = (
        world_of(4, rules=CALM_WITHOUT_PREEMPTION).submit("a", workers=2, extra_workers=2).decide()
    )
    assert width(world, "a") == 4
    world.submit("b", 1).submit("c", 2).decide(at=1)
    assert width(world, "a") == 3
    assert "b" in world.running
    assert "c" not in world.running


def test_a_job_that_preempts_none_still_gets_the_gpu_of_an_extra_worker():
    world = world_of(2).submit("a", extra_workers=1).decide()
    assert "b" in world.submit("b", preempts=False).decide(at=1).running


def test_a_gang_does_not_shrink_for_a_job_that_would_still_not_fit():
    world = world_of(4).submit("a", workers=2, extra_workers=2, priority=1).decide()
    world.submit("b", 3).decide(at=1)
    assert width(world, "a") == 4


def test_an_elastic_gang_does_not_shrink_for_extra_workers_of_another():
    world = world_of(4).submit("a", "1", extra_workers=3, request=Request(gpus=1)).decide()
    world.submit("b", extra_workers=3).decide(at=1)
    assert (width(world, "a"), width(world, "b")) == (3, 1)
    assert (width(world.decide(at=100), "a"), width(world, "b")) == (3, 1)


def test_a_more_important_job_of_its_tenant_shrinks_it_before_it_stops_a_whole_gang():
    world = world_of(2, 2).submit("rigid", 1).submit("a", extra_workers=2).decide()
    world.submit("b", 2, priority=5).decide(at=200)
    assert {"rigid", "a", "b"} <= set(world.running)
    assert width(world, "a") == 1


def test_a_preempted_gang_also_frees_the_gpus_of_its_extra_workers():
    world = world_of(4).submit("a", workers=2, extra_workers=2).decide()
    world.submit("b", 4, priority=5).decide(at=200)
    assert world.where == {"b": "n0/0 n0/1 n0/2 n0/3"}
    assert world.log[-2] == "b stops a a+1 a+2"


def test_with_a_preempted_gang_no_unneeded_extra_worker_of_another_ends():
    for workers, stopped in ((3, "a+1 low"), (2, "low")):
        world = (
            world_of(2, 2)
            .submit("a", 1, priority=1, extra_workers=1)
            .runs("low", "n1/0 n1/1")
            .decide()
        )
        world.submit("c", 1, priority=1, workers=workers).decide(at=2)
        assert f"c stops {stopped}" in world.log


def test_extra_workers_do_not_take_reserved_gpus():
    rules = replace(CALM, reserve_after_seconds=0.0)
    world = world_of(4, rules=rules).runs("long", "n0/0", duration=1000.0)
    world.submit("head", 4).submit("a", extra_workers=3, duration=100.0).decide(at=1)
    assert width(world, "a") == 1


def test_a_later_job_does_not_take_gpus_of_extra_workers_that_are_reserved():
    rules = with_rules(
        grow_after_seconds=10.0, reserve_after_seconds=0.0, preemption=NO_PREEMPTION, by_share=False
    )
    world = world_of(4, rules=rules).runs("long", "n0/0", duration=100.0)
    world.submit("a", extra_workers=2, duration=50.0).decide()
    assert width(world, "a") == 3
    world.submit("head", 4).submit("late", 1).decide(at=1)
    assert "late" not in world.running
    assert width(world, "a") == 3


def test_growth_stays_within_the_quota():
    world = world_of(4, quotas=[quota("x", limit(2, borrowing=0))])
    assert width(world.submit("a", 1, "x", extra_workers=3).decide(), "a") == 2


def test_a_job_whose_quota_its_tenants_extra_workers_use_up_gets_it_back():
    world = world_of(4, quotas=[quota("x", limit(2, borrowing=0))])
    world.submit("a", 1, "x", extra_workers=3).decide().submit("b", 1, "x").decide(at=1)
    assert width(world, "a") == 1
    assert "b" in world.running


def test_a_gang_within_its_quota_is_not_preempted_because_its_extra_workers_borrow():
    world = world_of(2, 2, quotas=[quota("x", 2), quota("y", 2)])
    world.submit("a", 1, "x", workers=2, extra_workers=2).decide()
    world.submit("b", 2, "y").decide(at=100)
    assert width(world, "a") == 2
    assert "b" in world.running


def test_while_its_worker_ends_the_gang_does_not_grow():
    world = world_of(3, 1, grace=5.0).runs("b", "n1/0").submit("a", extra_workers=3).decide()
    world.submit("c", 2).decide(at=100)
    world.end("b").decide(at=101)
    assert sorted(world.running) == ["a", "a+1", "a+2"]
    assert sorted(world.decide(at=105).running) == ["a", "c"]


def test_the_reason_and_the_loss_of_an_extra_worker_are_reported():
    world = world_of(2).submit("a", extra_workers=1).decide()
    world.submit("b")
    [found] = world.queue.cycle(world.cluster, 500.0, world.plan).preemptions
    [victim] = found.victims
    assert (victim.job, victim.reason, victim.lost_gpu_seconds) == (
        "a+1",
        PreemptionReason.ELASTIC_SCALE_DOWN,
        0.0,
    )


def test_extra_workers_are_not_counted_as_pending():
    world = world_of(2).submit("a", extra_workers=8).decide().submit("b", 4).decide(at=1)
    assert len(world.queue) == 1
    found = world.explain("b")
    assert isinstance(found, Wait)
    assert found.pending == 1


def test_found_running_in_any_order_it_is_as_wide_as_it_was():
    world = world_of(4)
    job = Job(JobId("a"), Gang.of(1, Request(gpus=1)), extra_workers=2)
    world.jobs |= {"a": job, "a+2": extra_worker(job, 2)}
    for name, uuid in (("a+2", "n0/0"), ("a", "n0/1")):
        world.runs(name + "x", uuid)
        places = world.running[name + "x"]
        world.end(name + "x")
        world._start(name, places)
    world.decide(at=50)
    assert sorted(world.running) == ["a", "a+1", "a+2"]


def test_how_an_elastic_gang_is_spread_cannot_be_said():
    gang = Gang.of(2, Request(gpus=1), Spread(max_nodes=1))
    with pytest.raises(InvalidRequest, match="spread"):
        Job(JobId("a"), gang, extra_workers=1)
    with pytest.raises(InvalidRequest, match="fewer than none"):
        Job(JobId("a"), Gang.of(2, Request(gpus=1)), extra_workers=-1)


elastic = st.tuples(asks, st.sampled_from([0, 1, 2, 5])).map(
    lambda of: of[0] | {"extra_workers": of[1]}
)


def invariants(world):
    jobs, running = world.jobs, world.running
    for name in running:
        of = jobs[name].extends
        if of is not None:
            assert of in running
            assert jobs[name].gang == Gang.of(1, jobs[of].gang.roles[0].request)
    for name, job in jobs.items():
        if name in running:
            assert len(running[name]) == job.gang.workers
            assert len(world.queue.state.elastic.extra_workers_of(name)) <= job.extra_workers
    books = world.queue.state.quota
    for tenant in TENANTS:
        leaf = books.tree.tenant(tenant)
        found = {key: milli for key, milli in books.usage.used_by(leaf).items() if milli}
        assert found == used(world).get(tenant, {})
    within_limits(world, books.usage)


@cases
@given(worlds(), st.lists(elastic, max_size=8))
def test_extra_workers_run_only_with_their_gang_and_within_the_quota(drawn, jobs):
    world, _ = drawn
    for number, ask in enumerate(jobs):
        world.now = 400.0 * number
        world.submit(f"j{number}", **ask).decide()
        invariants(world)
        gangs = [name for name in world.running if world.jobs[name].extends is None]
        if number % 3 == 2 and gangs:
            world.end(min(gangs)).decide()
            invariants(world)


@cases
@given(worlds(), st.lists(elastic, max_size=8))
def test_no_pending_job_would_fit_if_the_extra_workers_ended(drawn, jobs):
    """The property holds without reservations and without strict order."""
    world, _ = drawn
    for number, ask in enumerate(jobs):
        world.submit(f"j{number}", **ask)
        world.decide(at=float(number))
    state = world.queue.state
    if (
        not state.running.extra_workers
        or state.backfill_reservations
        or any(map(state.quota.strict_scope, TENANTS))
    ):
        return
    bare = world.cluster.overlay()
    for extra in state.running.extra_workers.values():
        state.quota.usage.add(extra.job.tenant, extra.charge, sign=-1)
        for placement in extra.placements:
            bare.assume_free(placement)
    for entry in state.pending:
        places = world.plan(bare, entry.job)
        if places is not None:
            charge = state.quota.charge(bare, places)
            assert not state.quota.usage.fits(entry.job.tenant, charge)


@cases
@given(worlds(), st.lists(elastic, max_size=8))
def test_without_arrivals_and_ends_elastic_gangs_stop_changing(drawn, jobs):
    world, _ = drawn
    for number, ask in enumerate(jobs):
        world.submit(f"j{number}", **ask)
    for later in range(5):
        before = len(world.log)
        world.decide(at=1000.0 * (later + 1))
    assert len(world.log) == before
