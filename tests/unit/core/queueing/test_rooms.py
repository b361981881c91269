# SPDX-License-Identifier: Apache-2.0
"""Room that is kept goes with who begins and ends: it is what would be foreseen anew."""

from math import inf

from core_builders import node
from hypothesis import given
from hypothesis import strategies as st
from queue_world import World, cohort, limit, quota, with_rules

from gpupack_core import Gang, Placement, Request
from gpupack_core.queueing import NEVER, Fifo, Job, JobId, Question, Tenant

EASY = with_rules(preemption=NEVER, by_share=False, keep_room_after=0, foreseen=100)


def with_a_head(**rules):
    """`gang` waits for all of n1, where `long` has one of two GPUs; n2 has one for others."""
    world = World(node("n1", 2), node("n2", 1), rules=with_rules(**vars_of(EASY) | rules))
    return world.runs("long", "n1/0", duration=10_000.0).submit("gang", 2)


def vars_of(rules):
    return {name: getattr(rules, name) for name in rules.__slots__}


def kept(world):
    return {
        str(room.job.id): sorted(grant.uuid for p in room.placements or () for grant in p.devices)
        for room in world.queue.state.kept
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
    (room,) = world.queue.state.kept
    arrays = room.future.cluster.arrays
    assert (arrays.free_gpu_milli <= arrays.gpus * 1000).all()


def test_a_room_past_its_time_is_looked_at_again_though_nothing_is_said():
    world = with_a_head().submit("first").decide(at=1)
    world.submit("second").decide(at=2)
    assert "second" not in world.where
    assert 2 < world.look_at <= 10_000


def test_an_admission_that_is_not_carried_out_is_in_nobodys_way():
    world = with_a_head().submit("first")
    (admit,) = world.queue.cycle(world.cluster, 1.0, world.plan).admitted
    world.queue.failed(admit, world.cluster)
    assert world.decide(at=2).where == {"first": "n2/0", "long": "n1/0"}


def test_who_is_withdrawn_after_it_was_let_in_leaves_its_place_to_others():
    world = with_a_head().submit("first")
    (admit,) = world.queue.cycle(world.cluster, 1.0, world.plan).admitted
    world.queue.failed(admit, world.cluster)
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
    assert not world.queue.cycle(world.cluster, 2.0, world.plan, but={"a"}).admitted
    assert kept(world) == {"gang": ["n1/0", "n1/1"]}


def test_in_strict_order_nobody_goes_before_one_that_is_passed_over():
    world = World(
        node("n1", 2),
        cohorts=[cohort("all", fifo=Fifo.STRICT)],
        quotas=[quota("a", 1, cohort="all"), quota("b", 1, cohort="all")],
        rules=with_rules(preemption=NEVER, by_share=False, keep_room_after=inf),
    )
    world.submit("first", 1, "a").submit("second", 1, "b")
    assert not world.queue.cycle(world.cluster, 1.0, world.plan, but={"a"}).admitted
    assert len(world.queue.cycle(world.cluster, 1.0, world.plan).admitted) == 2


def test_rooms_that_a_question_found_are_not_remembered_once_somebody_has_begun_to_run():
    world = with_a_head().submit("first").decide(at=1).submit("second")
    found = Question(world.queue.copy(foreseen=4), world.cluster.fork(), world.plan, 1.0).settle()
    assert found is not None
    world.end("first").runs("other", "n2/0")
    before = list(world.queue.state.kept)
    world.queue.state.remember(found)
    assert world.queue.state.kept == before


def test_who_begins_without_a_cycle_is_taken_out_of_rooms():
    """As an onlooker is told of it."""
    world = with_a_head().submit("first").decide(at=1)
    (room,) = world.queue.state.kept
    world.end("first").runs("seen", "n2/0")
    assert room.future.taken(JobId("seen")) is not None
    world.runs("in-the-way", "n1/1")
    assert not world.queue.state.kept


def foreseen_free(world, room):
    """GPUs by node when the room is needed, by the room and by the definition."""
    nodes = [each.name for each in world.cluster.nodes()]
    probe = Job(JobId("probe"), Gang(1, Request(gpus=0)), 0.0, Tenant(""))
    assert room.future.take(probe, tuple(Placement(name, ()) for name in nodes))
    rows = room.future.cluster.rows(nodes)
    found = (room.future.cluster.arrays.free_gpu_milli[rows] // 1000).tolist()
    waits = [room.future.taken(head) or () for head in world.queue.state.heads]
    runs = [each.placements for each in world.queue.state.running if each.until > room.at]
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
        over = [str(e.job.id) for e in world.queue.state.running if e.until <= world.now]
        sooner = draw(st.sets(st.sampled_from([*sorted(world.running), ""]), max_size=2)) - {""}
        for name in sooner.union(over):
            world.end(name)
        gpus, tenant = draw(st.integers(1, 4)), draw(st.sampled_from("abc"))
        world.submit(f"j{number}", gpus, tenant, duration=float(draw(st.integers(5, 300))))
        world.decide()
        for room in world.queue.state.copy().kept:
            if room.placements is not None:
                found, expected = foreseen_free(world, room)
                assert found == expected
