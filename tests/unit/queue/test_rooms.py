# SPDX-License-Identifier: Apache-2.0
"""Room that is kept goes with who begins and ends: it is what would be foreseen anew."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import node
from queue_world import World, cohort, limit, quota, with_rules

from gpupack_placement import Gang, NodeName, Placement, Request
from gpupack_queue import (
    NO_PREEMPTION,
    Job,
    JobId,
    OrderPolicy,
    PreemptionRules,
    Tenant,
    WhatIf,
)

BY_PRIORITY = PreemptionRules(
    min_runtime_seconds=0,
    retry_seconds=0,
    max_searches_per_cycle=1,
    nominal=False,
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


def test_places_of_one_who_was_let_past_and_has_ended_are_anybodys():
    world = with_a_head().submit("first").decide(at=1)
    assert world.where == {"first": "n2/0", "long": "n1/0"}
    world.end("first").submit("second").decide(at=21)
    assert world.where == {"long": "n1/0", "second": "n2/0"}


def test_places_of_one_who_ran_before_room_was_foreseen_and_has_ended_are_anybodys():
    world = with_a_head().runs("unknown", "n2/0").submit("first").decide(at=1)
    assert world.where == {"long": "n1/0", "unknown": "n2/0"}
    world.end("unknown").decide(at=2)
    assert world.where == {"first": "n2/0", "long": "n1/0"}


def test_places_of_one_who_ends_sooner_than_was_foreseen_are_not_given_back_twice():
    world = World(node("n1", 2), node("n2", 1), rules=EASY)
    world.runs("short", "n1/0", duration=100.0).runs("long", "n1/1", duration=1000.0)
    world.submit("gang", 2).submit("first").decide(at=1)
    world.end("short").submit("second").decide(at=2)
    assert world.where == {"first": "n2/0", "long": "n1/1"}
    (room,) = world.queue.state.backfill_reservations
    arrays = room.cluster_then.cluster.arrays
    assert (arrays.free_gpu_milli <= arrays.gpus * 1000).all()


def test_a_room_past_its_time_is_looked_at_again_though_nothing_is_said():
    world = with_a_head().submit("first").decide(at=1)
    world.submit("second").decide(at=2)
    assert "second" not in world.where
    assert 2 < world.due_at <= 10_000


def test_an_admission_that_is_not_carried_out_is_in_nobodys_way():
    world = with_a_head().submit("first")
    (admit,) = world.queue.cycle(world.cluster, 1.0, world.plan).admitted
    world.queue.revert_admission(admit, world.cluster)
    assert world.decide(at=2).where == {"first": "n2/0", "long": "n1/0"}


def test_who_is_withdrawn_after_it_was_let_in_leaves_its_place_to_others():
    world = with_a_head().submit("first")
    (admit,) = world.queue.cycle(world.cluster, 1.0, world.plan).admitted
    world.queue.revert_admission(admit, world.cluster)
    world.queue.withdraw(JobId("first"), world.cluster)
    assert world.submit("second").decide(at=2).where == {"long": "n1/0", "second": "n2/0"}


def test_what_one_tenants_quota_forbids_keeps_nobody_else_waiting():
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


def test_rooms_that_rest_on_others_are_foreseen_anew_when_one_more_urgent_comes():
    world = World(*(node(f"n{i}", 2) for i in (1, 2, 3)), node("n4", 1), node("n5", 1), rules=EASY)
    for name, ends in (("n1", 100.0), ("n2", 200.0), ("n3", 150.0)):
        world.runs(f"on-{name}", f"{name}/0 {name}/1", duration=ends)
    world.submit("first", 2).submit("small").decide(at=1)
    world.submit("urgent", 2, "b", priority=1).submit("more").decide(at=2)
    taken = [uuid for places in kept(world).values() for uuid in places]
    assert len(taken) == len(set(taken)) == 4
    assert kept(world)["urgent"] == ["n1/0", "n1/1"]
    assert kept(world)["first"] == ["n3/0", "n3/1"]


def test_of_a_tenant_that_is_passed_over_nobody_takes_the_room():
    world = World(node("n1", 2), rules=EASY).runs("long", "n1/0", duration=10_000.0)
    world.submit("gang", 2, "a").submit("small", 1, "b").decide(at=1)
    world.submit("large", 3, "b")
    assert not world.queue.cycle(world.cluster, 2.0, world.plan, excluded={"a"}).admitted
    assert kept(world) == {"gang": ["n1/0", "n1/1"]}


def test_in_strict_order_nobody_goes_before_one_that_is_passed_over():
    world = World(
        node("n1", 2),
        cohorts=[cohort("all", order=OrderPolicy.STRICT)],
        quotas=[quota("a", 1, cohort="all"), quota("b", 1, cohort="all")],
        rules=with_rules(preemption=NO_PREEMPTION, by_share=False, reserve_after_seconds=inf),
    )
    world.submit("first", 1, "a").submit("second", 1, "b")
    assert not world.queue.cycle(world.cluster, 1.0, world.plan, excluded={"a"}).admitted
    assert len(world.queue.cycle(world.cluster, 1.0, world.plan).admitted) == 2


def test_rooms_that_a_question_found_are_not_remembered_once_somebody_has_begun_to_run():
    world = with_a_head().submit("first").decide(at=1).submit("second")
    found = WhatIf(
        world.queue.copy(max_reservations=4), world.cluster.fork(), world.plan, 1.0
    ).settle()
    assert found is not None
    world.end("first").runs("other", "n2/0")
    before = list(world.queue.state.backfill_reservations)
    world.queue.state.restore(found)
    assert world.queue.state.backfill_reservations == before


def test_who_begins_without_a_cycle_is_taken_out_of_rooms():
    """As an onlooker is told of it."""
    world = with_a_head().submit("first").decide(at=1)
    (room,) = world.queue.state.backfill_reservations
    world.end("first").runs("seen", "n2/0")
    assert room.cluster_then.places_of(JobId("seen")) is not None
    world.runs("in-the-way", "n1/1")
    assert not world.queue.state.backfill_reservations


def test_a_node_that_is_added_harms_no_room():
    world = World(node("n1", 2), rules=EASY).runs("long", "n1/0", duration=10_000.0)
    world.submit("big", 2).submit("asks", duration=100_000.0).decide(at=1)
    assert kept(world) == {"big": ["n1/0", "n1/1"]}
    world.queue.withdraw(JobId("asks"), world.cluster)
    world.cluster.set_node(node("n2", 2))
    world.queue.record_node_change(NodeName("n2"), world.cluster)
    world.submit("urgent", 2, priority=5).decide(at=2)
    assert world.where == {"long": "n1/0", "urgent": "n2/0 n2/1"}


def test_who_was_moved_and_ends_leaves_its_room_once():
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


def test_who_fits_beside_nobody_before_it_has_room_once_they_have_run():
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


def test_who_was_let_in_before_room_was_foreseen_and_is_not_carried_out_is_in_nobodys_way():
    world = World(node("n1", 3), node("n2", 2), node("n3", 1), rules=EASY)
    world.runs("long", "n1/0 n1/1", duration=10_000.0)
    world.submit("first", 2, duration=1e6).submit("gang", 3).submit("small", duration=5.0)
    for admit in world.queue.cycle(world.cluster, 1.0, world.plan).admitted:
        world.queue.revert_admission(admit, world.cluster)
        world.queue.withdraw(admit.job, world.cluster)
    world.submit("other", 2, duration=1e6, request=Request(gpus=2, cpu=2)).decide(at=2)
    assert world.where.get("other") == "n2/0 n2/1"


def test_room_outlives_the_start_of_those_who_were_let_in_before_it_was_foreseen():
    world = World(node("n1", 3), node("n2", 2), node("n3", 1), rules=EASY)
    world.runs("long", "n1/0 n1/1", duration=10_000.0)
    world.submit("first", 2, duration=1e6).submit("gang", 3).submit("small", duration=5.0)
    world.decide(at=1)
    assert kept(world) == {"gang": ["n1/0", "n1/1", "n1/2"]}


def test_who_no_longer_goes_before_is_in_nobodys_way():
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
    """`poor` of a waits, in one strict order with whoever comes of b."""
    world = World(
        node("n1", 2),
        cohorts=[cohort("all", order=OrderPolicy.STRICT)],
        quotas=[quota("a", limit(0, borrowing=0), cohort="all"), quota("b", 2, cohort="all")],
        rules=with_rules(preemption=NO_PREEMPTION, by_share=False),
    )
    return world.submit("poor", tenant="a")


def test_who_is_passed_over_and_could_not_pay_holds_up_nobody():
    world = where_one_cannot_pay().submit("next", tenant="b")
    (admit,) = world.queue.cycle(world.cluster, 1.0, world.plan, excluded={"a"}).admitted
    assert admit.job == "next"


def test_of_who_is_passed_over_though_it_fits_nobody_takes_the_places():
    world = World(node("n1", 2), rules=EASY).runs("long", "n1/0", duration=100.0)
    world.submit("gang", 2, "a").submit("small", 1, "b", duration=1e5).decide(at=1)
    world.end("long").queue.record_node_change(NodeName("n1"), world.cluster)
    assert not world.queue.cycle(world.cluster, 50.0, world.plan, excluded={"a"}).admitted


def test_a_preemption_on_a_node_that_was_added_harms_no_room():
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
def test_who_starts_first_in_a_cycle_is_in_the_rooms_that_were_known_before(at_once):
    world = World(node("n1", 2), node("n2", 2), rules=EASY)
    world.runs("l1", "n1/0", duration=1000.0).runs("l2", "n2/0", duration=1100.0)
    world.submit("head", 2, duration=10.0).submit("asks", duration=1e6).decide(at=1)
    world.end("asks").submit("urgent", priority=5, duration=1e6)
    if not at_once:
        world.decide(at=2)
    world.submit("late", duration=1e6).decide(at=2)
    assert world.where == {"l1": "n1/0", "l2": "n2/0", "urgent": "n1/1"}
    assert kept(world) == {"head": ["n2/0", "n2/1"]}


def test_who_is_stopped_in_a_cycle_is_gone_from_the_rooms_that_were_known_before():
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


def test_an_extra_worker_that_is_a_guest_as_well_counts_as_gone_once():
    rules = with_rules(**vars_of(EASY) | {"max_backfill_delay_seconds": 300.0})
    world = World(node("n1", 2), node("n2", 2), node("n3", 2), rules=rules)
    world.runs("guessed", "n1/0", estimate=1000.0)
    world.runs("o2", "n2/0", duration=1e5).runs("o3", "n3/0", duration=1e5)
    world.submit("head", 2).submit("elastic", 1, extra_workers=1, duration=1e4).decide(at=1)
    world.queue.record_node_change(NodeName("n1"), world.cluster)
    world.submit("asks", 1, duration=1e4, preemptible=False).decide(at=2)
    (room,) = world.queue.state.backfill_reservations
    assert room.cluster_then.cluster.arrays.free_gpu_milli.tolist() == [0, 1000, 1000]


def test_a_visitor_waits_in_strict_order_for_nobody_who_could_not_pay():
    world = where_one_cannot_pay().decide(at=1)
    visitor = Job(JobId("visitor"), Gang(1, Request(gpus=1)), 1.0, Tenant("b"))
    (place,) = world.queue.try_admit(visitor, world.cluster, 2.0, world.plan)
    assert place.node == "n1"


def test_one_that_is_passed_over_and_fits_sooner_than_was_foreseen_keeps_those_places():
    world = World(node("n1", 2), rules=EASY).runs("long", "n1/0", duration=100.0)
    world.submit("gang", 2, "a").submit("asks", 1, "b", duration=1e5).decide(at=1)
    world.end("long").submit("short", 1, "b", duration=30.0)
    assert not world.queue.cycle(world.cluster, 50.0, world.plan, excluded={"a"}).admitted


def foreseen_free(world, room):
    """GPUs by node when the room is needed, by the room and by the definition."""
    nodes = [each.name for each in world.cluster.nodes()]
    probe = Job(JobId("probe"), Gang(1, Request(gpus=0)), 0.0, Tenant(""))
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
def test_kept_room_is_that_of_those_who_run(data):
    """Where all durations are known: the longest that each may run, and it may end sooner."""
    draw = data.draw
    world = World(*(node(f"n{i}", 4) for i in range(3)), rules=EASY)
    for number in range(25):
        world.now += draw(st.integers(0, 20))
        over = [str(e.job.id) for e in world.queue.state.running if e.latest_end <= world.now]
        sooner = draw(st.sets(st.sampled_from([*sorted(world.running), ""]), max_size=2)) - {""}
        for name in sooner.union(over):
            world.end(name)
        gpus, tenant = draw(st.integers(1, 4)), draw(st.sampled_from("abc"))
        world.submit(f"j{number}", gpus, tenant, duration=float(draw(st.integers(5, 300))))
        world.decide()
        for room in world.queue.state.copy().backfill_reservations:
            if room.placements is not None:
                found, expected = foreseen_free(world, room)
                assert found == expected
