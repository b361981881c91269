# SPDX-License-Identifier: Apache-2.0
"""Movable jobs move for a job that does not fit only because the free GPUs are scattered."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import node
from placement_strategies import cases
from queue_strategies import TENANTS, quotas
from queue_world import World, cohort, limit, quota, used, with_rules

from gpupack_queue import (
    NO_PREEMPTION,
    ConsolidationRules,
    OrderPolicy,
    PreemptionReason,
    PreemptionRules,
)
from gpupack_queue.errors import InvalidQuota

MOVES = ConsolidationRules(
    ratio=1.0,
    min_wait_seconds=0.0,
    cooldown_seconds=0.0,
    restart_seconds=60.0,
    checkpoint_seconds=600.0,
    retry_seconds=0.0,
)
RULES = with_rules(
    reserve_after_seconds=0.0,
    preemption=NO_PREEMPTION,
    consolidation=MOVES,
    max_reservations_per_cycle=100,
)


def rules(**kw):
    return replace(RULES, consolidation=replace(MOVES, **kw))


def fragmented(count=2, gpus=2, *, ask=2, tenant="", **kw):
    """Nodes with one movable job each, and a pending job that needs a whole node."""
    world = World(*(node(f"n{n}", gpus) for n in range(count)), **({"rules": RULES} | kw))
    for n in range(count):
        world.runs("abcdef"[n], f"n{n}/0", tenant, movable=True)
    return world.submit("large", ask, tenant)


def test_one_job_moves_and_the_pending_job_gets_a_whole_node():
    world = fragmented().decide(at=10)
    assert world.log == ["large moves a", "large starts", "a starts"]
    assert world.where == {"a": "n1/1", "b": "n1/0", "large": "n0/0 n0/1"}


def test_a_job_moves_for_one_that_only_endless_jobs_prevent():
    world = World(node("n1", 2), node("n2", 2), node("n3", 1), rules=RULES)
    world.runs("s1", "n1/0", duration=inf).runs("s2", "n2/0", duration=inf, movable=True)
    world.runs("s3", "n3/0", duration=inf).submit("large", 2).decide(at=10)
    assert world.log == ["large moves s2", "large starts", "s2 starts"]


def test_without_the_rule_no_job_is_moved_for_another():
    assert fragmented(rules=with_rules(reserve_after_seconds=0.0)).decide(at=10).log == []


def test_a_job_that_is_not_movable_stays():
    world = World(node("n0", 2), node("n1", 2), rules=RULES)
    world.runs("a", "n0/0").runs("b", "n1/0").submit("large", 2).decide(at=10)
    assert world.log == []


def test_no_job_is_moved_without_a_new_place_even_if_enough_gpus_are_free_in_total():
    world = World(node("n0", 2), node("n1", 2), node("n2", 1), rules=RULES)
    world.runs("a", "n0/0 n0/1", movable=True).runs("b", "n1/0")
    world.submit("large", 2).decide(at=10)
    assert world.log == []


def test_all_moved_jobs_have_new_places_at_the_same_time():
    world = World(node("n0", 3), node("n1", 3), rules=RULES)
    world.runs("a", "n0/0", movable=True).runs("b", "n0/1", movable=True)
    world.runs("c", "n1/0").runs("d", "n1/1").submit("large", 3).decide(at=10)
    assert world.log == []
    world.end("d").decide(at=20)
    assert world.log[0] == "large moves a b"
    assert len(world.running) == 4


def test_no_job_moves_to_gpus_that_another_moved_job_still_holds():
    world = fragmented(4, grace=10.0)
    world.submit("gang", 2, workers=2).queue.withdraw("large", world.cluster)
    world.decide(at=10)
    [decided] = world.consolidations
    held = {grant.uuid for places in world.running.values() for p in places for grant in p.devices}
    assert len(decided.moves) == 2
    for move in decided.moves:
        assert not held & {grant.uuid for place in move.placements for grant in place.devices}


def test_the_reservation_and_the_new_places_are_held_until_moved_jobs_have_ended():
    world = fragmented(grace=30.0).decide(at=10)
    world.submit("late", 1).decide(at=20)
    assert sorted(world.running) == ["a", "b"]
    world.decide(at=40)
    assert world.where == {"a": "n1/1", "b": "n1/0", "large": "n0/0 n0/1"}


def test_jobs_of_several_nodes_move_for_a_gang():
    world = fragmented(4)
    world.queue.withdraw("large", world.cluster)
    world.submit("gang", 2, workers=2).decide(at=10)
    assert world.log[0] == "gang moves a b"
    assert len(world.running) == 5


def test_no_job_is_moved_before_the_queue_head_has_waited_long_enough():
    world = fragmented(rules=rules(min_wait_seconds=100.0)).decide(at=10)
    assert (world.log, world.due_at) == ([], 100)
    assert "large" in world.decide(at=100).running


def test_a_job_that_started_or_moved_recently_is_not_moved():
    world = fragmented(rules=rules(cooldown_seconds=50.0)).decide(at=10)
    assert (world.log, world.due_at) == ([], 50)
    world.decide(at=50)
    world.end("large").end("b").submit("again", 2).runs("c", "n0/0").decide(at=60)
    assert "again" not in world.running
    assert "again" in world.decide(at=100).running
    assert world.log.count("a starts") == 2


def test_the_number_of_moves_for_one_job_is_limited():
    for most in (1, 2):
        world = World(node("n0", 4), node("n1", 4), rules=rules(max_moves=most))
        for n in range(2):
            world.runs(f"a{n}", f"n0/{n}", movable=True).runs(f"b{n}", f"n1/{n}", movable=True)
        world.submit("large", 4).decide(at=10)
        assert ("large" in world.running) is (most == 2)


def test_the_cost_of_moves_is_limited_by_the_gain():
    """2 GPUs for 100 s are gained; the move costs 60 s of a GPU, and the 10 s that were done."""
    for ratio in (0.34, 0.36):
        world = World(node("n0", 2), node("n1", 2), rules=rules(ratio=ratio))
        for name, on in (("a", "n0/0"), ("b", "n1/0")):
            world.runs(name, on, movable=True, duration=110.0)
        world.submit("large", 2).decide(at=10)
        assert bool(world.consolidations) is (ratio == 0.36)
    [decided] = world.consolidations
    assert (decided.gained_gpu_seconds, decided.lost_gpu_seconds) == (2 * 100, 60 + 10)


def test_a_move_loses_at_most_one_checkpoint_interval():
    [decided] = fragmented().decide(at=5000).consolidations
    assert decided.lost_gpu_seconds == 60 + 600


def test_a_start_without_an_estimate_gains_the_horizon():
    [decided] = fragmented(rules=rules(horizon_seconds=500.0)).decide(at=10).consolidations
    assert decided.gained_gpu_seconds == 2 * 500


def test_a_short_job_gains_no_more_than_its_duration():
    world = World(node("n0", 2), node("n1", 2), rules=RULES)
    world.runs("a", "n0/0", movable=True).runs("b", "n1/0", movable=True)
    world.submit("brief", 2, duration=10.0).decide(at=10)
    assert world.log == []


def test_the_cheaper_of_two_jobs_moves():
    world = World(node("n0", 2), node("n1", 2), rules=RULES)
    world.runs("old", "n0/0", movable=True)
    world.now = 300.0
    world.runs("young", "n1/0", movable=True).submit("large", 2).decide(at=301)
    assert world.log[0] == "large moves young"


def test_a_higher_priority_is_not_moved_for_a_lower_one():
    world = World(node("n0", 2), node("n1", 2), rules=RULES)
    world.runs("a", "n0/0", movable=True, priority=1).runs("b", "n1/0", movable=True, priority=1)
    world.submit("large", 2).decide(at=10)
    assert world.log == []
    assert "urgent" in world.submit("urgent", 2, priority=1).decide(at=20).running


def test_no_job_is_moved_for_a_job_that_preempts_none():
    world = World(node("n0", 2), node("n1", 2), rules=RULES)
    world.runs("a", "n0/0", movable=True).runs("b", "n1/0", movable=True)
    assert world.submit("large", 2, preempts=False).decide(at=10).log == []


def test_kai_1565_no_job_below_its_share_is_moved_for_one_above():
    """KAI-Scheduler#1565: a queue far above its share caused moves of a queue below its share. All
    moved jobs had other places, so usage did not change for any queue."""
    promised = [quota("pretraining", 2), quota("midtraining", 6)]
    world = World(*(node(f"n{n}", 4) for n in range(3)), quotas=promised, rules=RULES)
    world.runs("p", "n0/0 n0/1 n0/2 n0/3", "pretraining")
    world.runs("m1", "n1/0 n1/1", "midtraining", movable=True)
    world.runs("m2", "n2/0 n2/1", "midtraining", movable=True)
    world.submit("more", 4, "pretraining").decide(at=10)
    assert world.log == []
    world.submit("mine", 4, "midtraining").decide(at=20)
    assert world.log[0].startswith("mine moves m")


def test_kai_1565_without_quotas_no_job_is_moved_for_a_tenant_that_has_more():
    world = World(*(node(f"n{n}", 4) for n in range(3)), rules=RULES)
    world.runs("p", "n0/0 n0/1 n0/2 n0/3", "pretraining")
    world.runs("m1", "n1/0 n1/1", "midtraining", movable=True)
    world.runs("m2", "n2/0 n2/1", "midtraining", movable=True)
    assert world.submit("more", 4, "pretraining").decide(at=10).log == []


def test_kai_1565_holds_between_cohorts_too():
    promised = [quota("x", cohort="left"), quota("y", cohort="right")]
    cohorts = [cohort("left"), cohort("right", 6)]
    nodes = [node(f"n{n}", 4) for n in range(3)]
    world = World(*nodes, quotas=promised, cohorts=cohorts, rules=RULES)
    world.runs("l", "n0/0 n0/1 n0/2 n0/3", "x")
    world.runs("r1", "n1/0 n1/1", "y", movable=True).runs("r2", "n2/0 n2/1", "y", movable=True)
    assert world.submit("more", 4, "x").decide(at=10).log == []


def test_jobs_of_a_smaller_share_move_for_a_job_within_its_quota():
    promised = [quota("owner", 4), quota("guest")]
    world = World(node("n0", 4), node("n1", 4), quotas=promised, rules=RULES)
    world.runs("g1", "n0/0", "guest", movable=True).runs("g2", "n1/0", "guest", movable=True)
    world.submit("large", 4, "owner").decide(at=10)
    assert world.log[0].startswith("large moves g")


def test_a_full_quota_does_not_stand_in_the_way_of_what_it_holds_already():
    world = fragmented(tenant="x", quotas=[quota("x", limit(4, borrowing=0))]).decide(at=10)
    assert "large" in world.running


def test_a_moved_job_stays_within_its_quota_for_the_new_model():
    for of_t4 in (0, 1):
        promised = [
            quota("x", H100=limit(2), T4=limit(of_t4, borrowing=0)),
            quota("y", H100=2, T4=2),
        ]
        nodes = [node("n0", 2, model="H100"), node("n1", 2, model="T4")]
        world = World(*nodes, quotas=promised, rules=RULES)
        world.runs("a", "n0/0", "x", movable=True).runs("b", "n1/0", "y")
        world.submit("large", 2, "y").decide(at=10)
        assert bool(world.log) is bool(of_t4)


def test_extra_workers_shrink_before_any_job_is_moved():
    world = World(node("n0", 2), node("n1", 2), rules=RULES)
    world.submit("e", 1, extra_workers=1).decide()
    world.runs("b", "n1/0", movable=True).submit("large", 2).decide(at=10)
    assert world.consolidations == []
    world = World(node("n0", 2), node("n1", 2), rules=RULES)
    world.runs("b", "n1/0", movable=True).submit("e", 2, extra_workers=1).decide()
    world.runs("c", "n1/1").submit("next", 1).decide(at=10)
    assert world.consolidations == []


def test_the_extra_workers_of_a_gang_that_moves_restart_too():
    world = World(node("n0", 2), node("n1", 1), node("n2", 1), rules=RULES)
    world.runs("x", "n0/1").runs("y", "n2/0").submit("e", 1, extra_workers=1, movable=True).decide()
    assert world.where["e+1"] == "n1/0"
    world.end("x").end("y").submit("large", 2).decide(at=10)
    [decided] = world.consolidations
    assert decided.lost_gpu_seconds == 60 + 10 + 60
    assert world.where["e"] == "n2/0"


def test_no_job_moves_to_reserved_gpus():
    world = World(node("n0", 2), node("n1", 3), rules=RULES)
    world.runs("a", "n0/0", movable=True).runs("b", "n1/0", duration=1000.0)
    world.submit("first", 3).submit("large", 2, duration=5000.0).decide(at=10)
    assert world.log == []
    world.queue.withdraw("first", world.cluster)
    assert "large" in world.decide(at=20).running


def test_the_reservation_is_dropped_when_a_moved_job_never_ends():
    patient = PreemptionRules(
        reclaim=False, fair_share=False, priority=False, victim_timeout_seconds=20
    )
    world = fragmented(grace=inf, rules=replace(RULES, preemption=patient)).decide(at=10)
    world.decide(at=30)
    assert "large gives up" in world.log
    assert world.queue.state.stuck.keys() == {"a"}
    assert "a gives up" in world.log


def test_the_reason_of_a_move_is_consolidation():
    [decided] = fragmented().decide(at=10).consolidations
    [move], [victim] = decided.moves, decided.preempt.victims
    assert move.reason is victim.reason is PreemptionReason.CONSOLIDATION
    assert decided.preempt.job == "large"
    assert decided.lost_gpu_seconds == victim.lost_gpu_seconds == 60 + 10


@pytest.mark.parametrize("wrong", [{"ratio": -1.0}, {"cooldown_seconds": -1.0}, {"max_moves": -1}])
def test_a_rule_that_is_negative_is_refused(wrong):
    with pytest.raises(InvalidQuota, match="consolidation"):
        ConsolidationRules(**wrong)


longer = st.builds(
    lambda tenant, gpus: {"tenant": tenant, "gpus": gpus},
    st.sampled_from([*TENANTS, "a", "a"]),
    st.sampled_from([1, 2, 3, 3]),
)


@st.composite
def fragmented_worlds(draw):
    """Draw three nodes on which some GPUs are held, and later jobs."""
    rules = with_rules(
        order=draw(st.sampled_from(OrderPolicy)),
        reserve_after_seconds=0.0,
        preemption=draw(
            st.sampled_from(
                [NO_PREEMPTION, PreemptionRules(min_runtime_seconds=0, retry_seconds=0)]
            )
        ),
        consolidation=MOVES,
    )
    world = World(
        *(node(f"n{n}", 3) for n in range(3)), quotas=draw(st.just([]) | quotas()), rules=rules
    )
    world.grace = draw(st.sampled_from([0.0, 2.0]))
    for n in range(3):
        for gpu in draw(st.sets(st.integers(0, 2), min_size=1, max_size=2)):
            tenant, movable = draw(st.sampled_from(["a", "a", "b"])), draw(st.integers(0, 2)) > 0
            world.runs(f"r{n}{gpu}", f"n{n}/{gpu}", tenant, movable=movable)
    return world, draw(st.lists(longer, min_size=1, max_size=8))


@cases
@given(fragmented_worlds(), st.data())
def test_no_job_is_moved_without_gain_or_place_and_moves_come_to_an_end(drawn, data):
    """Movable jobs come, end and are moved, some slowly."""
    world, jobs = drawn
    for second, ask in enumerate(jobs):
        world.now = float(second)
        world.submit(f"j{second}", **ask, movable=data.draw(st.booleans()))
        before = len(world.consolidations)
        world.decide(at=float(second))
        for decided in world.consolidations[before:]:
            assert 0 < decided.lost_gpu_seconds <= MOVES.ratio * decided.gained_gpu_seconds
            for move in decided.moves:
                assert world.jobs[move.job].movable
                assert len(move.placements) == world.jobs[move.job].gang.workers
        promised = [
            grant.uuid
            for held in world.queue.state.reserved.values()
            for place in held.placements
            for grant in place.devices
        ]
        assert len(promised) == len(set(promised))
        books = world.queue.state.quota
        counted = {
            tenant: {key: milli for key, milli in books.held.used_by(leaf).items() if milli}
            for tenant in TENANTS
            for leaf in [books.tree.tenant(tenant)]
        }
        assert {tenant: held for tenant, held in counted.items() if held} == used(world)
    for later in range(5):
        world.decide(at=100.0 + 10 * later)
    assert not world.ending
    assert not world.queue.state.reserved
