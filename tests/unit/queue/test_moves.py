# SPDX-License-Identifier: Apache-2.0
"""Movable jobs leave draining devices as soon as there is another place for them."""

from math import inf

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


def test_a_moved_job_restarts_on_its_reserved_gpus():
    world = two_nodes(grace=10.0).runs("a", "n1/0 n1/1", movable=True)
    world.maintain("n1/0").decide()
    assert world.log == ["a moves"]
    world.submit("later", 2).decide(at=1)
    assert "later" not in world.running
    world.decide(at=10)
    assert world.log == ["a moves", "a starts"]
    assert world.where == {"a": "n2/0 n2/1"}


def test_a_job_that_is_not_movable_stays():
    world = two_nodes().runs("a", "n1/0").maintain("n1/0").decide()
    assert world.log == []


def test_without_a_drain_no_job_is_moved():
    world = two_nodes().runs("a", "n1/0", movable=True).maintain("n1/0", drain=False).decide()
    assert world.log == []


def test_a_job_on_other_devices_of_the_node_stays():
    world = two_nodes().runs("a", "n1/0", movable=True).runs("b", "n1/1", movable=True)
    world.maintain("n1/1").decide()
    assert world.log == ["b moves", "b starts"]
    assert world.where == {"a": "n1/0", "b": "n2/0"}


def test_a_job_is_moved_only_when_there_is_a_new_place():
    world = two_nodes().runs("a", "n1/0 n1/1", movable=True).runs("b", "n2/0")
    world.maintain("n1/0", "n1/1").decide()
    assert world.log == []
    world.end("b").decide(at=5)
    assert world.log == ["a moves", "a starts"]


def test_the_older_of_two_jobs_is_moved_if_there_is_one_place():
    world = World(node("n1", 2), node("n2", 1))
    world.runs("old", "n1/0", movable=True)
    world.now = 5.0
    world.runs("young", "n1/1", movable=True)
    world.maintain("n1/0", "n1/1").decide()
    assert world.where == {"old": "n2/0", "young": "n1/1"}


def test_a_moved_gang_may_keep_gpus_outside_the_drain():
    world = World(node("n1", 2), node("n2", 1))
    world.submit("a", 1, workers=2, movable=True).decide()
    assert world.where == {"a": "n1/0 n1/1"}
    world.maintain("n1/1").decide()
    assert world.where == {"a": "n1/0 n2/0"}


def test_a_move_respects_the_reservation_of_a_pending_job():
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


def test_the_usage_counts_a_moved_job_once():
    world = two_nodes(quotas=[quota("team", limit(2, borrowing=0))], grace=10.0)
    world.runs("a", "n1/0", "team", movable=True).maintain("n1/0").decide()
    books = world.queue.state.quota
    leaf = books.tree.tenant("team")
    assert sum(books.usage.used_by(leaf).values()) == 1000
    world.decide(at=20)
    assert sum(books.usage.used_by(leaf).values()) == 1000
    assert sum(books.held.used_by(leaf).values()) == 1000


def test_a_job_that_never_ends_keeps_its_gpus_and_is_not_moved_again():
    rules = with_rules(
        preemption=PreemptionRules(
            min_runtime_seconds=0, retry_seconds=0, victim_timeout_seconds=20
        )
    )
    world = two_nodes(rules=rules, grace=inf).runs("a", "n1/0", movable=True)
    world.maintain("n1/0").decide()
    assert world.due_at == 20
    world.decide(at=20)
    assert world.log == ["a moves", "a gives up"]
    world.submit("b", 2).decide(at=21)
    assert world.where == {"a": "n1/0", "b": "n2/0 n2/1"}


def test_a_new_place_that_fails_before_the_move_is_replaced():
    world = World(node("n1", 1), node("n2", 1), node("n3", 1), grace=10.0)
    world.runs("a", "n1/0", movable=True).maintain("n1/0").decide()
    world.maintain("n1/0", "n2/0").decide(at=5)
    world.decide(at=10)
    assert world.where == {"a": "n3/0"}


def test_the_new_place_of_a_moved_job_that_does_not_return_expires():
    rules = with_rules(
        preemption=PreemptionRules(
            min_runtime_seconds=0, retry_seconds=0, victim_timeout_seconds=20
        )
    )
    world = two_nodes(rules=rules, grace=5.0).runs("a", "n1/0 n1/1", movable=True)
    world.maintain("n1/0").decide()
    world.ending.clear()
    world.now = 5.0
    world.end("a").submit("b", 2).decide(at=6)
    assert world.where == {}
    world.decide(at=25)
    assert world.where == {"b": "n2/0 n2/1"}


def test_a_job_that_is_being_preempted_is_not_moved():
    world = two_nodes(quotas=[quota("mine", 4), quota("guest", 0)], grace=10.0)
    world.runs("g", "n1/0 n1/1", "guest", movable=True).runs("m", "n2/0", "mine")
    world.submit("w", 2, "mine").decide()
    assert world.log == ["w stops g"]
    world.end("m").maintain("n1/0").decide(at=1)
    assert "g moves" not in world.log


def free_for(world, places):
    """Return whether all these places are free once the running victims have ended."""
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
    """List the moves of the log in order."""
    return [line for line in world.log if line.endswith(" moves")]


def used(world, tenant):
    """Count the usage from the running jobs: milli-GPU by key."""
    found = {}
    for name, places in world.running.items():
        if world.jobs[name].tenant == tenant:
            for key, milli in world.queue.state.quota.charge(world.cluster, places).items():
                found[key] = found.get(key, 0) + milli
    return found


@cases
@given(worlds(), st.data())
def test_no_job_is_moved_without_a_place_and_no_place_is_reserved_twice(drawn, data):
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


def test_a_move_has_its_reason():
    world = two_nodes(rules=PATIENT).runs("a", "n1/0", movable=True).maintain("n1/0")
    found = world.queue.cycle(world.cluster, 0.0, world.plan)
    (move,) = found.moves
    assert isinstance(move, Move)
    assert move.reason == "Maintenance"
