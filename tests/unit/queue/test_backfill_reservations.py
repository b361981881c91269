# SPDX-License-Identifier: Apache-2.0
"""Reservations follow starts and ends of jobs: they equal a fresh computation."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import A100, H100, node
from queue_world import World, cohort, limit, quota, with_rules

from gpupack_placement import Gang, NodeName, Placement, Request
from gpupack_queue import (
    NO_PREEMPTION,
    Job,
    JobId,
    OrderPolicy,
    PreemptionRules,
    Statement,
    Tenant,
    WhatIf,
)

BY_PRIORITY = PreemptionRules(
    min_runtime_seconds=0,
    retry_seconds=0,
    max_searches_per_cycle=1,
    reclaim=False,
    fair_share=False,
)
EASY = with_rules(
    preemption=NO_PREEMPTION,
    by_share=False,
    reserve_after_seconds=0,
    max_reservations_per_cycle=100,
)


def with_a_head(**rules):
    """`gang` waits for all of n1, where `long` has one of two GPUs; n2 has one for others."""
    world = World(node("n1", 2), node("n2", 1), rules=with_rules(**vars_of(EASY) | rules))
    return world.runs("long", "n1/0", duration=10_000.0).submit("gang", 2)


def vars_of(rules):
    return {name: getattr(rules, name) for name in rules.__slots__}


def kept(world):
    return {
        str(room.job.id): sorted(grant.uuid for p in room.placements or () for grant in p.devices)
        for room in world.queue.state.backfill_reservations
    }


def test_gpus_of_an_ended_backfilled_job_are_free_for_any_job():
    world = with_a_head().submit("first").decide(at=1)
    assert world.where == {"first": "n2/0", "long": "n1/0"}
    world.end("first").submit("second").decide(at=21)
    assert world.where == {"long": "n1/0", "second": "n2/0"}


def test_gpus_of_an_ended_job_from_before_the_reservation_are_free_for_any_job():
    world = with_a_head().runs("unknown", "n2/0").submit("first").decide(at=1)
    assert world.where == {"long": "n1/0", "unknown": "n2/0"}
    world.end("unknown").decide(at=2)
    assert world.where == {"first": "n2/0", "long": "n1/0"}


def test_gpus_of_a_job_that_ends_early_are_freed_once():
    world = World(node("n1", 2), node("n2", 1), rules=EASY)
    world.runs("short", "n1/0", duration=100.0).runs("long", "n1/1", duration=1000.0)
    world.submit("gang", 2).submit("first").decide(at=1)
    world.end("short").submit("second").decide(at=2)
    assert world.where == {"first": "n2/0", "long": "n1/1"}
    (room,) = world.queue.state.backfill_reservations
    arrays = room.cluster_then.cluster.arrays
    assert (arrays.free_gpu_milli <= arrays.gpus * 1000).all()


def test_a_reservation_past_its_time_is_recomputed_without_an_event():
    world = with_a_head().submit("first").decide(at=1)
    world.submit("second").decide(at=2)
    assert "second" not in world.where
    assert 2 < world.due_at <= 10_000


def test_a_reverted_admission_blocks_no_other_job():
    world = with_a_head().submit("first")
    (admit,) = world.queue.cycle(world.cluster, 1.0, world.plan).admitted
    world.queue.discard([admit], Statement(), world.cluster)
    assert world.decide(at=2).where == {"first": "n2/0", "long": "n1/0"}


def test_a_job_that_is_withdrawn_after_admission_releases_its_gpus():
    world = with_a_head().submit("first")
    (admit,) = world.queue.cycle(world.cluster, 1.0, world.plan).admitted
    world.queue.discard([admit], Statement(), world.cluster)
    world.queue.withdraw(JobId("first"), world.cluster)
    assert world.submit("second").decide(at=2).where == {"long": "n1/0", "second": "n2/0"}


def test_a_request_that_its_quota_forbids_blocks_no_other_tenant():
    any_gpu = Request(gpus=1)
    world = World(
        node("h1", 2, model="H100"),
        node("t1", 1, model="T4"),
        quotas=[quota("a", H100=limit(8), T4=limit(0, borrowing=0)), quota("b", T4=limit(1))],
        rules=EASY,
    )
    world.runs("long", "h1/0", "b", duration=10_000.0)
    world.submit("gang", tenant="a", request=Request(gpus=2, models=("H100",)))
    world.submit("a1", tenant="a", request=any_gpu).submit("b1", tenant="b", request=any_gpu)
    assert world.decide(at=1).where.get("b1") == "t1/0"


def test_later_reservations_are_recomputed_when_a_more_urgent_job_arrives():
    world = World(*(node(f"n{i}", 2) for i in (1, 2, 3)), node("n4", 1), node("n5", 1), rules=EASY)
    for name, ends in (("n1", 100.0), ("n2", 200.0), ("n3", 150.0)):
        world.runs(f"on-{name}", f"{name}/0 {name}/1", duration=ends)
    world.submit("first", 2).submit("small").decide(at=1)
    world.submit("urgent", 2, "b", priority=1).submit("more").decide(at=2)
    taken = [uuid for places in kept(world).values() for uuid in places]
    assert len(taken) == len(set(taken)) == 4
    assert kept(world)["urgent"] == ["n1/0", "n1/1"]
    assert kept(world)["first"] == ["n3/0", "n3/1"]


def test_no_job_takes_the_reservation_of_an_excluded_tenant():
    world = World(node("n1", 2), rules=EASY).runs("long", "n1/0", duration=10_000.0)
    world.submit("gang", 2, "a").submit("small", 1, "b").decide(at=1)
    world.submit("large", 3, "b")
    assert not world.queue.cycle(world.cluster, 2.0, world.plan, excluded={"a"}).admitted
    assert kept(world) == {"gang": ["n1/0", "n1/1"]}


def test_in_strict_order_no_job_overtakes_one_of_an_excluded_tenant():
    world = World(
        node("n1", 2),
        cohorts=[cohort("all", order=OrderPolicy.STRICT)],
        quotas=[quota("a", 1, cohort="all"), quota("b", 1, cohort="all")],
        rules=with_rules(preemption=NO_PREEMPTION, by_share=False, reserve_after_seconds=inf),
    )
    world.submit("first", 1, "a").submit("second", 1, "b")
    assert not world.queue.cycle(world.cluster, 1.0, world.plan, excluded={"a"}).admitted
    assert len(world.queue.cycle(world.cluster, 1.0, world.plan).admitted) == 2


def test_reservations_that_a_what_if_found_are_dropped_once_a_job_starts():
    world = with_a_head().submit("first").decide(at=1).submit("second")
    found = WhatIf(
        world.queue.copy(max_reservations=4), world.cluster.fork(), world.plan, 1.0
    ).settle()
    assert found is not None
    world.end("first").runs("other", "n2/0")
    before = list(world.queue.state.backfill_reservations)
    world.queue.state.restore(found)
    assert world.queue.state.backfill_reservations == before


def test_a_job_that_starts_without_a_cycle_is_removed_from_reservations():
    """A read-only queue sees the start."""
    world = with_a_head().submit("first").decide(at=1)
    (room,) = world.queue.state.backfill_reservations
    world.end("first").runs("seen", "n2/0")
    assert room.cluster_then.places_of(JobId("seen")) is not None
    world.runs("in-the-way", "n1/1")
    assert not world.queue.state.backfill_reservations


def test_an_added_node_keeps_reservations_valid():
    world = World(node("n1", 2), rules=EASY).runs("long", "n1/0", duration=10_000.0)
    world.submit("big", 2).submit("asks", duration=100_000.0).decide(at=1)
    assert kept(world) == {"big": ["n1/0", "n1/1"]}
    world.queue.withdraw(JobId("asks"), world.cluster)
    world.cluster.set_node(node("n2", 2))
    world.queue.record_node_change(NodeName("n2"), world.cluster)
    world.submit("urgent", 2, priority=5).decide(at=2)
    assert world.where == {"long": "n1/0", "urgent": "n2/0 n2/1"}


def test_a_moved_job_that_ends_frees_its_gpus_once():
    world = World(node("n1", 4), node("n2", 1), rules=EASY)
    world.runs("moved", "n1/0", duration=100.0, movable=True).runs("long", "n1/1", duration=1000.0)
    world.submit("gang", 4, duration=10.0)
    world.queue.reserve_for_move(world.jobs["moved"], world.running["moved"], world.cluster, 0.0)
    world.end("moved").queue.submit(world.jobs["moved"], 0.0)
    world.submit("small", duration=3000.0).decide(at=1)
    world.submit("late", duration=9000.0).decide(at=2)
    world.now = 101.0
    world.end("moved").decide(at=101)
    world.now = 1000.0
    assert "gang" in world.end("long").decide(at=1000).where


def test_a_job_that_fits_only_alone_gets_a_reservation_after_the_jobs_before_it():
    world = World(node("n1", 4), node("n2", 1), rules=EASY)
    world.runs("long", "n1/0 n1/1", duration=100.0).runs("other", "n2/0", duration=50.0)
    world.submit("first", 3, duration=100.0).submit("all", 4, duration=100.0)
    world.submit("asks", tenant="x", duration=40.0).decide(at=1)
    for number, now in enumerate(range(10, 1000, 20)):
        world.now = float(now)
        for each in [e for e in world.queue.state.running if e.latest_end <= now]:
            world.end(str(each.job.id))
        world.submit(f"small{number}", tenant="x", duration=300.0).decide(at=now)
    assert "all starts" in world.log


def test_a_reverted_admission_from_before_a_reservation_blocks_no_other_job():
    world = World(node("n1", 3), node("n2", 2), node("n3", 1), rules=EASY)
    world.runs("long", "n1/0 n1/1", duration=10_000.0)
    world.submit("first", 2, duration=1e6).submit("gang", 3).submit("small", duration=5.0)
    for admit in world.queue.cycle(world.cluster, 1.0, world.plan).admitted:
        world.queue.discard([admit], Statement(), world.cluster)
        world.queue.withdraw(admit.job, world.cluster)
    world.submit("other", 2, duration=1e6, request=Request(gpus=2, cpu=2)).decide(at=2)
    assert world.where.get("other") == "n2/0 n2/1"


def test_a_reservation_survives_the_start_of_jobs_admitted_before_it():
    world = World(node("n1", 3), node("n2", 2), node("n3", 1), rules=EASY)
    world.runs("long", "n1/0 n1/1", duration=10_000.0)
    world.submit("first", 2, duration=1e6).submit("gang", 3).submit("small", duration=5.0)
    world.decide(at=1)
    assert kept(world) == {"gang": ["n1/0", "n1/1", "n1/2"]}


def test_the_reservation_of_a_job_whose_quota_is_used_up_blocks_no_other_job():
    """`first` was before `second`, and its namespace has used up its quota since."""
    quotas = [quota("a", limit(3, borrowing=0)), quota("b", 20)]
    nodes = (node("n1", 2), node("n2", 4), *(node(f"n{i}", 1) for i in (3, 4, 5)))
    world = World(*nodes, quotas=quotas, rules=EASY)
    world.runs("l1", "n1/0 n1/1", "b", duration=1000.0)
    world.runs("l2", "n2/0 n2/1 n2/2 n2/3", "b", duration=2000.0)
    world.runs("x", "n3/0", "b", duration=5e4).runs("y", "n4/0", "b", duration=5e4)
    world.submit("first", 2, "a").submit("second", 4, "b")
    world.submit("asks", tenant="b", duration=1e5).decide(at=1)
    assert list(kept(world)) == ["first", "second"]
    world.end("x").end("l1").end("y")
    world.runs("a0", "n3/0", "a", duration=1e5).runs("a1", "n4/0", "a", duration=1e5)
    world.submit("third", 2, "b", duration=1e5, request=Request(gpus=2, cpu=1)).decide(at=3)
    assert world.where.get("third") == "n1/0 n1/1"


def where_one_cannot_pay():
    """`poor` of tenant a waits, in one strict order with the jobs of tenant b."""
    world = World(
        node("n1", 2),
        cohorts=[cohort("all", order=OrderPolicy.STRICT)],
        quotas=[quota("a", limit(0, borrowing=0), cohort="all"), quota("b", 2, cohort="all")],
        rules=with_rules(preemption=NO_PREEMPTION, by_share=False),
    )
    return world.submit("poor", tenant="a")


def test_an_excluded_job_beyond_its_quota_blocks_no_other_job():
    world = where_one_cannot_pay().submit("next", tenant="b")
    (admit,) = world.queue.cycle(world.cluster, 1.0, world.plan, excluded={"a"}).admitted
    assert admit.job == "next"


def test_no_job_takes_the_gpus_of_an_excluded_job_that_fits():
    world = World(node("n1", 2), rules=EASY).runs("long", "n1/0", duration=100.0)
    world.submit("gang", 2, "a").submit("small", 1, "b", duration=1e5).decide(at=1)
    world.end("long").queue.record_node_change(NodeName("n1"), world.cluster)
    assert not world.queue.cycle(world.cluster, 50.0, world.plan, excluded={"a"}).admitted


def test_a_preemption_on_an_added_node_keeps_reservations_valid():
    rules = with_rules(preemption=BY_PRIORITY, by_share=False, reserve_after_seconds=0)
    world = World(node("n1", 2), rules=rules, grace=5.0)
    world.runs("long", "n1/0", duration=10_000.0, preemptible=False)
    world.submit("head", 2).submit("asks", duration=1e6).decide(at=1)
    world.cluster.set_node(node("n2", 1, model="T4"))
    world.queue.record_node_change(NodeName("n2"), world.cluster)
    world.runs("low", "n2/0")
    asked = Request(gpus=1, models=("T4",))
    assert world.submit("urgent", priority=5, request=asked).decide(at=2).log == [
        "urgent stops low"
    ]


@pytest.mark.parametrize("at_once", [True, False])
def test_earlier_reservations_include_a_job_that_starts_first_in_a_cycle(at_once):
    world = World(node("n1", 2), node("n2", 2), rules=EASY)
    world.runs("l1", "n1/0", duration=1000.0).runs("l2", "n2/0", duration=1100.0)
    world.submit("head", 2, duration=10.0).submit("asks", duration=1e6).decide(at=1)
    world.end("asks").submit("urgent", priority=5, duration=1e6)
    if not at_once:
        world.decide(at=2)
    world.submit("late", duration=1e6).decide(at=2)
    assert world.where == {"l1": "n1/0", "l2": "n2/0", "urgent": "n1/1"}
    assert kept(world) == {"head": ["n2/0", "n2/1"]}


def test_earlier_reservations_exclude_a_victim_of_the_cycle():
    rules = with_rules(
        preemption=BY_PRIORITY,
        by_share=False,
        reserve_after_seconds=0,
        max_reservations_per_cycle=100,
    )
    world = World(node("n1", 2), node("n2", 2), node("n3", 1), rules=rules, grace=5.0)
    world.runs("victim", "n1/0 n1/1", duration=1000.0)
    world.runs("l2", "n2/0", duration=1100.0, priority=9).runs(
        "l3", "n2/1", duration=1e5, priority=9
    )
    world.submit("head", 2, duration=10.0, priority=1, preempts=False)
    world.submit("asks", duration=1e6, preempts=False).decide(at=1)
    world.end("l3").submit("urgent", 2, priority=5, duration=1e6)
    world.submit("late", duration=1e6, preempts=False).decide(at=2)
    assert kept(world) == {"head": ["n2/0", "n2/1"]}
    assert "late" not in world.where


def test_a_speculatively_backfilled_extra_worker_is_removed_once():
    rules = with_rules(**vars_of(EASY) | {"max_backfill_delay_seconds": 300.0})
    world = World(node("n1", 2), node("n2", 2), node("n3", 2), rules=rules)
    world.runs("estimated", "n1/0", estimate=1000.0)
    world.runs("o2", "n2/0", duration=1e5).runs("o3", "n3/0", duration=1e5)
    world.submit("head", 2).submit("elastic", 1, extra_workers=1, duration=1e4).decide(at=1)
    world.queue.record_node_change(NodeName("n1"), world.cluster)
    world.submit("asks", 1, duration=1e4, preemptible=False).decide(at=2)
    (room,) = world.queue.state.backfill_reservations
    assert room.cluster_then.cluster.arrays.free_gpu_milli.tolist() == [0, 1000, 1000]


def test_an_ungated_pod_does_not_wait_in_strict_order_for_jobs_beyond_their_quota():
    world = where_one_cannot_pay().decide(at=1)
    visitor = Job(JobId("visitor"), Gang.of(1, Request(gpus=1)), 1.0, Tenant("b"))
    (place,) = world.queue.try_admit(visitor, world.cluster, 2.0, world.plan)
    assert place.node == "n1"


def test_an_excluded_job_that_fits_earlier_than_estimated_keeps_its_gpus():
    world = World(node("n1", 2), rules=EASY).runs("long", "n1/0", duration=100.0)
    world.submit("gang", 2, "a").submit("asks", 1, "b", duration=1e5).decide(at=1)
    world.end("long").submit("short", 1, "b", duration=30.0)
    assert not world.queue.cycle(world.cluster, 50.0, world.plan, excluded={"a"}).admitted


def change_deadline(world, name, left):
    """The job runs for at most this much longer, in seconds."""
    before = world.queue.state.running.get(JobId(name))
    job = replace(world.jobs[name], duration=world.now + left - before.started)
    world.jobs[name] = job
    world.queue.update_running(job, before.placements, world.cluster, world.now)


def computed_at(world):
    return {str(each.job.id): each.computed_at for each in world.queue.state.backfill_reservations}


@pytest.mark.parametrize("left", [1.0, 60.0, 5000.0])
def test_a_changed_deadline_keeps_the_reservations_that_do_not_depend_on_it(left):
    """`tenant` holds a GPU of n2, where nothing is reserved."""
    world = World(node("n1", 2), node("n2", 1), rules=EASY)
    world.runs("long", "n1/0", duration=1000.0).runs("tenant", "n2/0", duration=2000.0)
    world.submit("gang", 2).submit("asks").decide(at=1)
    for second in range(2, 9):
        world.now = float(second)
        change_deadline(world, "tenant", left)
        world.submit(f"more{second}").decide()
    assert computed_at(world)["gang"] == 1
    assert kept(world)["gang"] == ["n1/0", "n1/1"]


@pytest.mark.parametrize(("left", "start"), [(50.0, 1000.0), (1500.0, 1502.0)])
def test_a_reservation_keeps_its_time_unless_the_job_that_it_waits_for_may_run_longer(left, start):
    world = World(node("n1", 2), node("n2", 2), rules=EASY)
    world.runs("long", "n1/0", duration=1000.0).runs("longer", "n2/0", duration=4000.0)
    world.submit("gang", 2).submit("asks").decide(at=1)
    world.now = 2.0
    change_deadline(world, "long", left)
    world.submit("more").decide()
    (room,) = world.queue.state.backfill_reservations
    assert (room.job.id, room.start_at) == ("gang", start)


def test_a_job_that_may_run_longer_but_is_not_in_the_way_keeps_the_reservation():
    world = World(node("n1", 3), rules=EASY)
    world.runs("long", "n1/0", duration=1000.0).runs("other", "n1/1", duration=900.0)
    world.submit("gang", 2).submit("asks", duration=2000.0).decide(at=1)
    world.now = 2.0
    change_deadline(world, "long", 5000.0)
    world.submit("more", duration=2000.0).decide()
    (room,) = world.queue.state.backfill_reservations
    assert (room.start_at, room.computed_at) == (900.0, 1.0)


def test_a_job_uses_the_gpus_of_one_whose_deadline_is_shorter_now():
    """`gang` can then start on n2, and `small` need not wait for n1."""
    world = World(node("n1", 2), node("n2", 2, cpu=500), rules=EASY)
    world.runs("long", "n1/0", duration=1000.0).runs("longer", "n2/0", duration=4000.0)
    world.submit("gang", 2).submit("small", request=Request(gpus=1, cpu=1000)).decide(at=1)
    assert "small" not in world.where
    world.now = 2.0
    change_deadline(world, "longer", 100.0)
    assert world.decide().where["small"] == "n1/1"


def foreseen_free(world, room):
    """Return the free GPUs by node at the reservation's time, as reserved and by definition."""
    nodes = [each.name for each in world.cluster.nodes()]
    probe = Job(JobId("probe"), Gang.of(1, Request(gpus=0)), 0.0, Tenant(""))
    assert room.cluster_then.place(probe, tuple(Placement(name, ()) for name in nodes))
    rows = room.cluster_then.cluster.rows(nodes)
    found = (room.cluster_then.cluster.arrays.free_gpu_milli[rows] // 1000).tolist()
    waits = [room.cluster_then.places_of(entry.job.id) or () for entry in world.queue.state.pending]
    runs = [
        each.placements for each in world.queue.state.running if each.latest_end > room.start_at
    ]
    held = {
        g.uuid for places in (room.placements, *waits, *runs) for p in places for g in p.devices
    }
    devices = [[device.uuid for device in node.devices] for node in world.cluster.nodes()]
    return found, [sum(uuid not in held for uuid in of_node) for of_node in devices]


@given(st.data())
def test_reservations_match_the_running_jobs(data):
    """Where all durations are known: the longest that each may run, and it may end sooner."""
    draw = data.draw
    world = World(*(node(f"n{i}", 4) for i in range(3)), rules=EASY)
    for number in range(25):
        world.now += draw(st.integers(0, 20))
        over = [str(e.job.id) for e in world.queue.state.running if e.latest_end <= world.now]
        sooner = draw(st.sets(st.sampled_from([*sorted(world.running), ""]), max_size=2)) - {""}
        for name in sooner.union(over):
            world.end(name)
        for name in draw(st.sets(st.sampled_from([*sorted(world.running), ""]), max_size=2)) - {""}:
            change_deadline(world, name, float(draw(st.integers(1, 200))))
        gpus, tenant = draw(st.integers(1, 4)), draw(st.sampled_from("abc"))
        world.submit(f"j{number}", gpus, tenant, duration=float(draw(st.integers(5, 300))))
        world.decide()
        for room in world.queue.state.copy().backfill_reservations:
            if room.placements is not None:
                found, expected = foreseen_free(world, room)
                assert found == expected


def test_one_tenant_takes_the_reservations_of_no_other():
    """Each tenant that lacks GPUs has a part of the reservations, and the first has the rest."""
    rules = with_rules(preemption=NO_PREEMPTION, by_share=False, reserve_after_seconds=0)
    world = World(*(node(f"n{i}", 2) for i in range(8)), rules=rules)
    for number in range(8):
        world.runs(f"r{number}", f"n{number}/0", duration=1000.0 + number)
    for number in range(12):
        asked = Request(gpus=2, cpu=number)
        world.submit(f"many{number}", tenant="many", request=asked)
    world.decide(at=1)
    assert kept(world) == {}
    for number in range(2):
        world.submit(f"one{number}", 2, "one").submit(f"two{number}", 2, "two")
    world.submit("asks", tenant="small").decide(at=2).decide(at=3)
    assert sorted(kept(world)) == ["many0", "many1", "one0", "two0"]


def test_the_only_tenant_that_lacks_gpus_has_all_reservations():
    rules = with_rules(preemption=NO_PREEMPTION, by_share=False, reserve_after_seconds=0)
    world = World(*(node(f"n{i}", 2) for i in range(6)), rules=rules)
    for number in range(6):
        world.runs(f"r{number}", f"n{number}/0", duration=1000.0 + number)
        world.submit(f"many{number}", tenant="many", request=Request(gpus=2, cpu=number))
    world.submit("asks", tenant="small").decide(at=2)
    assert sorted(kept(world)) == ["many0", "many1", "many2", "many3"]


@pytest.mark.parametrize("by_share", [True, False])
def test_shapes_of_one_tenant_that_fit_behind_no_reservation_leave_other_heads_their_turn(by_share):
    """Whole-cluster gangs fit in no future behind `first`; `other` waits for an A100 of its own."""
    rules = with_rules(preemption=NO_PREEMPTION, by_share=by_share, reserve_after_seconds=0)
    world = World(node("n1", 4), node("n2", 2, model=A100), rules=rules)
    world.runs("r1", "n1/0", duration=1000.0).runs("r2", "n2/0", duration=500.0)
    world.submit("first", 4, "many", priority=5)
    for number in range(60):
        asked = Request(gpus=4, cpu=number, models=(H100,))
        world.submit(f"many{number}", tenant="many", request=asked, priority=4)
    world.submit("other", tenant="other", request=Request(gpus=2, models=(A100,)))
    world.submit("asks", tenant="small", request=Request(gpus=1, models=(A100,)))
    world.decide(at=1)
    assert kept(world)["other"] == ["n2/0", "n2/1"]
    assert "asks" not in world.where
