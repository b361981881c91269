# SPDX-License-Identifier: Apache-2.0
"""Calls of the queue and their results, beyond the peers' cases."""

from dataclasses import replace
from functools import partial
from math import inf

import pytest
from placement_builders import node
from queue_world import World, cohort, limit, quota, with_rules

from gpupack_placement.errors import AlreadyHeld, NotHeld
from gpupack_queue import (
    NO_PREEMPTION,
    JobId,
    OrderPolicy,
    PreemptionReason,
    PreemptionRules,
    Statement,
    WaitReason,
)

WITHOUT_PREEMPTION = with_rules(preemption=NO_PREEMPTION)


def test_priority_goes_before_share_and_share_before_age():
    world = World(node("n1", 2), rules=WITHOUT_PREEMPTION)
    world.runs("old", "n1/0", "rich").runs("blocker", "n1/1", "other")
    world.submit("early", 1, "rich").submit("poor", 1, "poor").submit(
        "urgent", 1, "rich", priority=5
    )
    world.decide()
    for _ in range(3):
        world.end(min(world.running, key=lambda name: world.jobs[name].number)).decide()
    assert world.log == ["urgent starts", "poor starts", "early starts"]


def test_cohorts_are_compared_before_their_tenants():
    world = World(
        node("n1", 4),
        quotas=[quota("a", cohort="busy"), quota("b", cohort="busy"), quota("c", cohort="idle")],
        rules=WITHOUT_PREEMPTION,
    )
    world.runs("a1", "n1/0 n1/1", "a").runs("c1", "n1/2", "c").runs("x", "n1/3", "x")
    world.submit("b-first", 1, "b").submit("c-second", 1, "c")
    world.decide().end("x").decide()
    assert world.log == ["c-second starts"]


def test_only_in_a_strict_cohort_no_job_overtakes_the_queue_head():
    world = World(
        node("n1", 4),
        cohorts=[cohort("line", order=OrderPolicy.STRICT)],
        quotas=[quota("a", cohort="line"), quota("b", cohort="line")],
        rules=with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=inf),
    )
    world.runs("old", "n1/0", "a").submit("large", 4, "b")
    world.submit("small", 1, "a").submit("other", 1, "c").decide()
    assert world.log == ["other starts"]
    assert world.explain("small").blocked_by == "large"


def test_a_used_up_quota_does_not_block_other_tenants():
    world = World(
        node("n1", 4),
        quotas=[quota("a", limit(1, borrowing=0))],
        rules=with_rules(order=OrderPolicy.STRICT),
    )
    world.submit("a1", 1, "a").submit("a2", 1, "a").submit("b1", 1, "b").decide()
    assert sorted(world.where) == ["a1", "b1"]
    assert world.explain("a2").reason is WaitReason.BORROWING_LIMIT_EXCEEDED


def test_a_job_that_may_use_any_model_goes_where_its_quota_allows_it():
    quotas = [quota("a", H100=limit(0, borrowing=0))]
    world = World(node("n1", 1), node("n2", 1, model="T4"), quotas=quotas)
    world.submit("any", 1, "a").submit("more", 1, "a").decide()
    assert world.where == {"any": "n2/0"}


def test_a_reservation_is_made_even_if_durations_are_unknown():
    """Small jobs without a deadline keep coming; the gang gets the node that is free first."""
    rules = with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=10)
    world = World(node("n1", 2), node("n2", 1), rules=rules)
    world.runs("a", "n1/0").submit("gang", 2).decide(at=20)
    world.submit("small1").submit("small2").decide(at=21)
    assert world.where == {"a": "n1/0", "small1": "n2/0"}
    assert world.explain("small2").reason is WaitReason.RESERVED
    world.end("a").decide(at=30)
    assert world.where["gang"] == "n1/0 n1/1"


def test_gpus_are_reserved_at_once_against_lower_priorities_and_later_against_equals():
    rules = with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=100)
    world = World(node("n1", 2), node("n2", 2), rules=rules)
    world.runs("a", "n1/0 n1/1", duration=50).runs("b", "n2/0", duration=60)
    world.submit("gang", 2, workers=2, priority=5).submit("low").decide(at=1)
    assert world.explain("low").reason is WaitReason.RESERVED
    assert "low" not in world.where
    world.submit("equal", priority=5, duration=500).decide(at=2)
    assert world.where["equal"] == "n2/1"
    world.end("b").submit("short", duration=30).decide(at=3)
    assert world.where["short"] == "n2/0"
    world.end("a").end("equal").end("short").decide(at=40)
    assert list(world.where) == ["gang"]


def test_a_reservation_moves_when_a_job_of_equal_priority_takes_its_gpus():
    """A reservation against lower priorities is recomputed, and still held."""
    rules = with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=100)
    world = World(node("n1", 2), node("n2", 2), rules=rules)
    world.runs("a", "n1/0", duration=50).runs("b", "n2/0 n2/1", duration=70)
    world.submit("pair", 2, priority=5).submit("low1").decide(at=1)
    assert "low1" not in world.where
    world.submit("equal", priority=5, duration=500).decide(at=2)
    assert world.where["equal"] == "n1/1"
    world.end("a").decide(at=50)
    assert world.where["low1"] == "n1/0"
    world.submit("low2").end("b").decide(at=70)
    assert "pair" in world.where


def test_one_reservation_is_made_per_cycle_and_no_job_overtakes_the_next_head():
    rules = with_rules(preemption=NO_PREEMPTION, by_share=False, reserve_after_seconds=0)
    world = World(node("n1", 2), node("n2", 2), node("n3", 2), rules=rules)
    for n, ends in (("n1", 50), ("n2", 60), ("n3", 70)):
        world.runs(n, f"{n}/0", duration=ends)
    world.submit("first", 2).submit("second", 2, "other").submit("long", duration=500)
    cycle = partial(world.queue.cycle, world.cluster, 1.0, world.plan)
    once = cycle()
    assert (once.admitted, once.due_at) == ((), 1.0)
    twice = cycle()
    (found,) = twice.admitted
    assert (found.job, found.placements[0].node) == ("long", "n3")


def test_no_reservation_depends_on_a_job_without_an_end():
    rules = with_rules(preemption=NO_PREEMPTION, reserve_after_seconds=0)
    world = World(node("n1", 2), rules=rules)
    world.runs("service", "n1/0", duration=inf).submit("gang", 2).submit("small").decide(at=5)
    assert world.where["small"] == "n1/1"


def test_the_cycle_says_when_time_alone_makes_a_decision_due():
    world = World(
        node("n1", 1),
        quotas=[quota("owner", 1)],
        rules=with_rules(
            preemption=PreemptionRules(min_runtime_seconds=60), reserve_after_seconds=inf
        ),
    )
    world.runs("guest", "n1/0", "guest").submit("mine", 1, "owner").decide(at=10)
    assert (world.log, world.due_at) == ([], 60)
    world.decide(at=60)
    assert world.log == ["mine stops guest", "mine starts"]


def test_the_minimum_run_time_counts_for_each_job_on_its_own():
    world = World(
        node("n1", 1),
        quotas=[quota("owner", 1)],
        rules=with_rules(
            preemption=PreemptionRules(min_runtime_seconds=60), reserve_after_seconds=inf
        ),
    )
    world.now = 50.0
    world.runs("guest", "n1/0", "guest", held_since=0.0).submit("mine", 1, "owner").decide(at=60)
    assert world.log == ["mine stops guest", "mine starts"]


def test_a_cohort_has_its_own_minimum_run_time():
    world = World(
        node("n1", 2),
        cohorts=[cohort("slow", min_runtime_seconds=100)],
        quotas=[quota("owner", 1), quota("s", cohort="slow")],
    )
    world.runs("s1", "n1/0", "s").runs("q1", "n1/1", "quick")
    world.submit("mine", 1, "owner").decide(at=10)
    assert world.log[0] == "mine stops q1"


def test_a_job_that_is_not_preemptible_is_never_preempted():
    world = World(node("n1", 1), quotas=[quota("owner", 1)])
    world.runs("fixed", "n1/0", "guest", preemptible=False).submit("mine", 1, "owner")
    assert world.decide(at=10).log == []


def test_a_decision_names_the_preemption_reason_of_each_victim():
    world = World(node("n1", 3), quotas=[quota("mine", 1)])
    world.runs("own", "n1/0", "mine").runs("g1", "n1/1", "guest").runs("g2", "n1/2", "guest")
    world.submit("pair", 2, "mine", priority=1)
    world.now = 10.0
    (found,) = world.queue.cycle(world.cluster, world.now, world.plan).preemptions
    grounds = {victim.job: victim.reason for victim in found.victims}
    assert set(grounds.values()) <= {
        PreemptionReason.PRIORITY,
        PreemptionReason.IN_COHORT_FAIR_SHARING,
    }
    assert grounds["own"] is PreemptionReason.PRIORITY


def test_victims_that_do_not_end_are_named_and_another_way_is_taken():
    rules = with_rules(
        preemption=PreemptionRules(
            min_runtime_seconds=0, retry_seconds=0, victim_timeout_seconds=120
        )
    )
    world = World(node("n1", 1), node("n2", 1), quotas=[quota("owner", 1)], rules=rules, grace=inf)
    world.runs("stuck", "n1/0", "guest").submit("mine", 1, "owner")
    world.now = 1.0
    world.runs("older", "n2/0", "guest")
    world.decide(at=50)
    assert world.log == ["mine stops older"]
    assert world.due_at == 170
    world.decide(at=170)
    assert world.log == ["mine stops older", "mine gives up", "mine stops stuck"]


def test_places_stay_reserved_across_a_restart_of_the_owner():
    world = World(node("n1", 1), quotas=[quota("owner", 1)], grace=60)
    world.runs("guest", "n1/0", "guest").submit("mine", 1, "owner")
    world.now = 10.0
    (decision,) = world.queue.cycle(world.cluster, world.now, world.plan).preemptions
    after = World(node("n1", 1), quotas=[quota("owner", 1)], grace=60)
    after.runs("guest", "n1/0", "guest").submit("mine", 1, "owner")
    after.queue.reserve(decision, after.cluster, 10.0)
    after.submit("thief", 1, "guest").decide(at=11)
    after.end("guest").decide(at=12)
    assert after.log == ["mine starts"]


def test_a_withdrawn_preemptor_releases_its_reservation():
    world = World(node("n1", 1), quotas=[quota("owner", 1)], grace=60)
    world.runs("guest", "n1/0", "guest").submit("mine", 1, "owner").decide(at=10)
    world.queue.withdraw(JobId("mine"), world.cluster)
    world.end("guest").submit("next", 1, "guest").decide(at=20)
    assert world.where == {"next": "n1/0"}


def test_an_admission_that_came_to_nothing_is_made_again():
    world = World(node("n1", 1)).submit("job")
    (admit,) = world.queue.cycle(world.cluster, 0.0, world.plan).admitted
    world.queue.discard([admit], Statement(), world.cluster)
    assert world.decide().log == ["job starts"]


def test_a_job_that_started_at_another_time_ends_by_its_original_estimate():
    world = World(node("n1", 2)).runs("known", "n1/0", duration=100.0).runs("unknown", "n1/1")
    for name in ("known", "unknown"):
        world.queue.correct_start(JobId(name), -3.0)
    running = world.queue.state.running
    assert [
        (running.get(JobId(n)).started, running.get(JobId(n)).latest_end) for n in world.running
    ] == [
        (-3.0, 100.0),
        (-3.0, inf),
    ]
    with pytest.raises(NotHeld, match="job other does not run"):
        world.queue.correct_start(JobId("other"), 0.0)


def test_other_quotas_count_at_once():
    world = World(node("n1", 2), quotas=[quota("a", limit(1, borrowing=0))])
    world.submit("a1", 1, "a").submit("a2", 1, "a").decide()
    assert list(world.where) == ["a1"]
    more = World(quotas=[quota("a", limit(2, borrowing=0))]).queue.state.quota.quotas
    world.queue.configure(more, world.cluster, world.now)
    assert list(world.decide().where) == ["a1", "a2"]


def test_without_changes_nothing_is_planned():
    world = World(node("n1", 1))
    for number in range(200):
        world.submit(f"job{number}", 1, f"t{number % 5}")
    world.decide()
    plans = []
    real = world.plan
    world.plan = lambda *given: plans.append(given) or real(*given)
    world.decide()
    world.submit("one-more", 1, "t0").decide()
    assert plans == []


def test_a_job_does_not_wait_twice():
    world = World(node("n1", 1)).submit("job")
    with pytest.raises(AlreadyHeld):
        world.queue.submit(world.jobs["job"], 0.0)


def test_the_end_of_a_job_that_does_not_run_is_ignored():
    world = World(node("n1", 1)).submit("job")
    with pytest.raises(NotHeld):
        world.queue.end(JobId("job"), world.cluster, 0.0)


def test_tenants_of_weight_zero_do_not_preempt_each_other_in_turn():
    """Each share of theirs is without end, so that after a loss none is the smaller."""
    world = World(node("n0", 4), quotas=[quota("a", weight=0.0), quota("b", weight=0.0)])
    for gpu in range(4):
        world.runs(f"b{gpu}", f"n0/{gpu}", "b")
    for number in range(3):
        world.submit(f"a{number}", 1, "a")
    world.decide(at=10)
    assert world.log == []


def test_a_large_share_of_one_model_costs_no_gpus_of_another_model():
    """Else the other could take it back in turn: the larger of its shares stays as it is."""
    world = World(
        node("t4", 1, model="T4"), node("h100", 2), quotas=[quota("c", T4=limit(0), H100=limit(0))]
    )
    world.runs("a-t4", "t4/0", "a").runs("a-h100", "h100/0", "a")
    world.submit("both", 2, "b").decide(at=10)
    assert world.log == []


def test_own_jobs_are_preempted_if_only_a_smaller_share_allows_the_other_victims():
    world = World(node("n0", 1), node("n1", 3), node("n2", 2))
    for name, on, tenant in (
        ("own-0", "n0/0", "a"),
        ("own-1", "n1/0", "a"),
        ("own-2", "n2/0", "a"),
        ("large", "n1/1 n1/2", "b"),
        ("small", "n2/1", "b"),
    ):
        world.runs(name, on, tenant)
    world.submit("late", gpus=2, tenant="a", priority=1).decide(at=50)
    assert "late" in world.where


def used(world, tenant="guest"):
    """Return the usage as counted and as counted after a rebuild."""
    state = world.queue.state
    before = dict(state.quota.usage.used_by(state.quota.tree.tenant(tenant)))
    state.rebuild()
    after = dict(state.quota.usage.used_by(state.quota.tree.tenant(tenant)))
    return [{key: milli for key, milli in each.items() if milli} for each in (before, after)]


def test_a_victim_that_ends_worker_by_worker_leaves_no_usage():
    world = World(node("n1", 8), quotas=[quota("owner", 8)], grace=inf)
    world.runs("gang", "n1/0 n1/1 n1/2 n1/3", "guest").submit("mine", 8, "owner").decide(at=10)
    places = world.running["gang"]
    assert used(world) == [{}, {}]
    for left in (3, 2, 1):
        fewer = tuple(replace(each, devices=each.devices[:left]) for each in places)
        world.queue.update_running(world.jobs["gang"], fewer, world.cluster, world.now)
        assert used(world) == [{}, {}]
    world.queue.end(JobId("gang"), world.cluster, world.now)
    assert used(world) == [{}, {}]


def test_a_job_that_holds_less_counts_less():
    world = World(node("n1", 4), quotas=[quota("a", 1)])
    world.runs("gang", "n1/0 n1/1", "a")
    places = tuple(replace(each, devices=each.devices[:1]) for each in world.running["gang"])
    world.queue.update_running(world.jobs["gang"], places, world.cluster, 5.0)
    assert used(world, "a") == [{"": 1000}, {"": 1000}]
    (running,) = world.queue.state.running
    assert running.started == 0.0


def test_a_victim_found_after_its_preemption_was_counts_no_more():
    """As after a restart, where a status is read before the victim's."""
    world = World(node("n1", 2), quotas=[quota("owner", 2)], grace=60)
    world.runs("guest", "n1/0 n1/1", "guest").submit("mine", 2, "owner")
    world.now = 10.0
    (decision,) = world.queue.cycle(world.cluster, world.now, world.plan).preemptions
    after = World(node("n1", 2), quotas=[quota("owner", 2)], grace=60).submit("mine", 2, "owner")
    after.queue.reserve(decision, after.cluster, 10.0)
    after.runs("guest", "n1/0 n1/1", "guest")
    assert used(after) == [{}, {}]


def test_no_job_is_preempted_while_the_owner_cannot_record_it():
    world = World(node("n1", 1), quotas=[quota("owner", 1)])
    world.runs("guest", "n1/0", "guest").submit("mine", 1, "owner")
    world.now = 100.0
    assert not world.queue.cycle(world.cluster, world.now, world.plan, preempt=False)
    assert world.decide(at=106).log[0] == "mine stops guest"


def test_a_job_that_failed_on_a_node_prefers_other_nodes():
    world = World(node("n1", 1), node("n2", 1), rules=WITHOUT_PREEMPTION)
    avoids = frozenset({"n1"})
    world.submit("again", 1, avoid=avoids).submit("more", 1, avoid=avoids).decide()
    assert {name: places[0].node for name, places in world.running.items()} == {
        "again": "n2",
        "more": "n1",
    }


def test_a_terminating_victim_counts_against_its_limit():
    """His tenant's next job would fit on the other node, and together they would be above it."""
    world = World(
        node("n1", 2),
        node("n2", 1),
        quotas=[quota("a", limit(0, borrowing=2)), quota("b", 2)],
        grace=10.0,
    )
    world.runs("a1", "n1/0 n1/1", "a").runs("c1", "n2/0", "c")
    world.submit("b1", 2, "b").decide(at=100)
    world.end("c1").submit("a2", 1, "a").decide(at=101)
    assert world.log == ["b1 stops a1"]
    assert world.explain("a2").message == "waiting for preempted jobs to release quota"
    world.decide(at=110)
    assert world.log[1:] == ["b1 starts", "a2 starts"]
