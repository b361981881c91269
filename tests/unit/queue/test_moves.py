# SPDX-License-Identifier: Apache-2.0
"""Movable jobs leave devices that are to be left, as soon as there is another place for them."""

from hypothesis import given
from hypothesis import strategies as st
from placement_builders import node
from placement_strategies import cases
from queue_strategies import TENANTS, submitted, worlds
from queue_world import PATIENT, World, limit, quota, with_rules

from gpupack_queue import Move, PreemptionRules

NO_SHARES = with_rules(by_share=False)


def two_nodes(**kw):
    return World(node("n1", 2), node("n2", 2), **kw)


def test_a_movable_job_starts_again_on_the_places_that_were_kept_for_it():
    world = two_nodes(grace=10.0).runs("a", "n1/0 n1/1", movable=True)
    world.maintain("n1/0").decide()
    assert world.log == ["a moves"]
    world.submit("later", 2).decide(at=1)
    assert "later" not in world.running
    world.decide(at=10)
    assert world.log == ["a moves", "a starts"]
    assert world.where == {"a": "n2/0 n2/1"}


def test_who_does_not_say_that_it_is_movable_stays():
    world = two_nodes().runs("a", "n1/0").maintain("n1/0").decide()
    assert world.log == []


def test_where_nothing_drains_nobody_is_moved():
    world = two_nodes().runs("a", "n1/0", movable=True).maintain("n1/0", drain=False).decide()
    assert world.log == []


def test_who_holds_other_devices_of_the_node_stays():
    world = two_nodes().runs("a", "n1/0", movable=True).runs("b", "n1/1", movable=True)
    world.maintain("n1/1").decide()
    assert world.log == ["b moves", "b starts"]
    assert world.where == {"a": "n1/0", "b": "n2/0"}


def test_nobody_is_moved_without_a_place_and_it_is_when_there_is_one():
    world = two_nodes().runs("a", "n1/0 n1/1", movable=True).runs("b", "n2/0")
    world.maintain("n1/0", "n1/1").decide()
    assert world.log == []
    world.end("b").decide(at=5)
    assert world.log == ["a moves", "a starts"]


def test_of_two_the_older_is_moved_where_there_is_one_place():
    world = World(node("n1", 2), node("n2", 1))
    world.runs("old", "n1/0", movable=True)
    world.now = 5.0
    world.runs("young", "n1/1", movable=True)
    world.maintain("n1/0", "n1/1").decide()
    assert world.where == {"old": "n2/0", "young": "n1/1"}


def test_a_gang_may_keep_the_places_that_it_need_not_leave():
    world = World(node("n1", 2), node("n2", 1))
    world.submit("a", 1, workers=2, movable=True).decide()
    assert world.where == {"a": "n1/0 n1/1"}
    world.maintain("n1/1").decide()
    assert world.where == {"a": "n1/0 n2/0"}


def test_the_room_of_one_who_waits_is_respected():
    world = two_nodes(rules=with_rules(reserve_after_seconds=0.0))
    world.runs("a", "n1/0", movable=True).runs("b", "n2/0", duration=50.0)
    world.submit("large", 2).decide()
    world.maintain("n1/0", "n1/1").decide(at=1)
    assert [room.job.id for room in world.queue.state.backfill_reservations] == ["large"]
    assert world.log == []


def test_a_full_quota_does_not_stand_in_the_way_of_what_it_holds_already():
    world = two_nodes(quotas=[quota("team", limit(1, borrowing=0))])
    world.runs("a", "n1/0", "team", movable=True).maintain("n1/0", "n1/1").decide()
    assert world.where == {"a": "n2/0"}


def test_the_books_count_who_is_moved_once():
    world = two_nodes(quotas=[quota("team", limit(2, borrowing=0))], grace=10.0)
    world.runs("a", "n1/0", "team", movable=True).maintain("n1/0").decide()
    books = world.queue.state.quota
    leaf = books.tree.tenant("team")
    assert sum(books.usage.used_by(leaf).values()) == 1000
    world.decide(at=20)
    assert sum(books.usage.used_by(leaf).values()) == 1000
    assert sum(books.held.used_by(leaf).values()) == 1000


def test_who_never_ends_is_left_where_it_is_and_moved_no_more():
    rules = with_rules(
        preemption=PreemptionRules(min_runtime_seconds=0, retry_seconds=0, patience_seconds=20)
    )
    world = two_nodes(rules=rules, grace=1000.0).runs("a", "n1/0", movable=True)
    world.maintain("n1/0").decide()
    assert world.due_at == 20
    world.decide(at=20)
    assert world.log == ["a moves", "a gives up"]
    world.submit("b", 2).decide(at=21)
    assert world.where == {"a": "n1/0", "b": "n2/0 n2/1"}


def test_a_place_that_breaks_meanwhile_is_exchanged_for_another():
    world = World(node("n1", 1), node("n2", 1), node("n3", 1), grace=10.0)
    world.runs("a", "n1/0", movable=True).maintain("n1/0").decide()
    world.maintain("n1/0", "n2/0").decide(at=5)
    world.decide(at=10)
    assert world.where == {"a": "n3/0"}


def test_who_does_not_come_back_keeps_its_place_for_so_long_and_no_longer():
    rules = with_rules(
        preemption=PreemptionRules(min_runtime_seconds=0, retry_seconds=0, patience_seconds=20)
    )
    world = two_nodes(rules=rules, grace=5.0).runs("a", "n1/0 n1/1", movable=True)
    world.maintain("n1/0").decide()
    world.ending.clear()
    world.now = 5.0
    world.end("a").submit("b", 2).decide(at=6)
    assert world.where == {}
    world.decide(at=20)
    assert world.where == {"b": "n2/0 n2/1"}


def test_who_is_stopped_for_another_already_is_not_moved():
    world = two_nodes(quotas=[quota("mine", 4), quota("guest", 0)], grace=10.0)
    world.runs("g", "n1/0 n1/1", "guest", movable=True).runs("m", "n2/0", "mine")
    world.submit("w", 2, "mine").decide()
    assert world.log == ["w stops g"]
    world.end("m").maintain("n1/0").decide(at=1)
    assert "g moves" not in world.log


def free_for(world, places):
    """Whether all these places can be held beside all that is held but by these who end."""
    sheet = world.cluster.overlay()
    for name in world.queue.state.running_victims():
        for place in world.running[name]:
            sheet.assume_free(place)
    return all(
        free.milli >= grant.milli
        for place in places
        for grant in place.devices
        for free in sheet.free_devices(place.node)
        if free.uuid == grant.uuid
    )


def moves(world):
    """Who was moved, in order."""
    return [line for line in world.log if line.endswith(" moves")]


def used(world, tenant):
    """Counted anew from what runs: milli-GPU by key."""
    found = {}
    for name, places in world.running.items():
        if world.jobs[name].tenant == tenant:
            for key, milli in world.queue.state.quota.charge(world.cluster, places).items():
                found[key] = found.get(key, 0) + milli
    return found


@cases
@given(worlds(), st.data())
def test_nobody_is_moved_without_a_place_and_none_is_promised_to_two(drawn, data):
    """Devices go into maintenance and come out again while jobs come, end and are moved."""
    world, jobs = drawn
    world.grace = data.draw(st.sampled_from([0.0, 2.0]))
    devices = [device.uuid for each in world.cluster.nodes() for device in each.devices]
    for second, ask in enumerate(jobs):
        at = float(second)
        submitted(world, [{**ask, "movable": data.draw(st.booleans())}], at=at)
        world.maintain(*data.draw(st.sets(st.sampled_from(devices), max_size=2)))
        before = dict(world.kept)
        world.decide(at=at)
        maintained = {
            device for node_devices in world.queue.state.drains.values() for device in node_devices
        }
        for name, places in world.kept.items():
            assert world.jobs[name].movable
            if before.get(name) is not places:
                taken = {grant.uuid for place in places for grant in place.devices}
                assert len(places) == world.jobs[name].gang.workers
                assert not taken & maintained
                if name in world.queue.state.reserved:
                    assert free_for(world, places)
        promised = [
            grant.uuid
            for held in world.queue.state.reserved.values()
            for place in held.placements
            for grant in place.devices
        ]
        assert len(promised) == len(set(promised))
        books = world.queue.state.quota
        for tenant in TENANTS:
            held = books.held.used_by(books.tree.tenant(tenant))
            found = {key: milli for key, milli in held.items() if milli}
            assert found == used(world, tenant)
    for later in range(5):
        world.decide(at=100.0 + later)
    before = len(moves(world))
    world.decide(at=200.0)
    assert len(moves(world)) == before


def test_a_move_says_on_which_ground():
    world = two_nodes(rules=PATIENT).runs("a", "n1/0", movable=True).maintain("n1/0")
    found = world.queue.cycle(world.cluster, 0.0, world.plan)
    (move,) = found.moves
    assert isinstance(move, Move)
    assert move.reason == "Maintenance"
