# SPDX-License-Identifier: Apache-2.0
"""Victims that terminate: within their grace period they leave, and what they free is not lost."""

from math import inf

import pytest
from placement_builders import node
from queue_world import World, limit, quota, with_rules

from gpupack_placement import Request
from gpupack_queue import PreemptionRules

RULES = with_rules(preemption=PreemptionRules(min_runtime_seconds=60))
"""A victim is left alone after 120 s beyond its grace period."""


def borrowers(count=8, **kw):
    """All GPUs of a node are borrowed, and `mine` needs one that its quota guarantees."""
    world = World(node("n1", count), quotas=[quota("owner", 4)], **{"rules": RULES} | kw)
    for number in range(count):
        world.runs(f"b{number}", f"n1/{number}", "borrower")
    return world.decide(at=100).submit("mine", 1, "owner")


def steps(world, *, until, step=10):
    for now in range(100, until, step):
        world.decide(at=float(now))
        if "mine" in world.running:
            return now
    return None


def preemptions(world):
    return [line for line in world.log if " stops " in line]


@pytest.mark.parametrize("grace", [30, 119, 120, 121, 240, 360, 500, 3600])
def test_a_victim_within_its_grace_period_is_the_only_one(grace):
    world = borrowers(grace=grace)
    assert steps(world, until=grace + 200) == 100 + -(-grace // 10) * 10
    assert preemptions(world) == ["mine stops b0"]


@pytest.mark.parametrize("factor", [1, 2, 3, 5])
def test_a_preemptor_starts_on_the_gpu_of_its_first_victim_even_if_others_end_in_that_cycle(factor):
    """The queue does not know the grace period, and gives up each victim after 120 s."""
    world = borrowers(grace=factor * 120, grace_is_known=False)
    assert steps(world, until=4000) == 100 + factor * 120
    assert len(preemptions(world)) == max(factor, 1)


def test_gpus_of_a_victim_that_ends_late_belong_to_the_job_it_was_preempted_for():
    """A more urgent job of another namespace waits for any GPU."""
    world = borrowers(1, grace=inf)
    world.decide(at=100).submit("urgent", 1, "other", priority=9)
    world.decide(at=230)
    assert world.log == ["mine stops b0", "mine gives up"]
    world.end("b0").decide(at=300)
    assert list(world.where) == ["mine"]


def test_a_preemptor_that_no_longer_fits_gives_way_to_other_jobs():
    """`mine` needs two GPUs; one of them fails before its victims have ended."""
    world = World(node("n1", 2), quotas=[quota("owner", 2)], rules=RULES, grace=inf)
    world.runs("b0", "n1/0", "borrower").runs("b1", "n1/1", "borrower")
    world.decide(at=100).submit("mine", 2, "owner").submit("next", 1, "other", priority=9)
    world.decide(at=100).decide(at=230)
    world.maintain("n1/0", drain=False)
    world.end("b0").end("b1").decide(at=300)
    assert world.where == {"next": "n1/1"}
    world.maintain()
    world.end("next").decide(at=310)
    assert list(world.where) == ["mine"]


def test_victims_with_several_grace_periods_leave_within_the_longest():
    world = World(node("n1", 2), quotas=[quota("owner", 2)], rules=RULES, grace=inf)
    world.runs("short", "n1/0", "borrower", grace_seconds=30)
    world.runs("long", "n1/1", "borrower", grace_seconds=600)
    world.decide(at=100).submit("mine", 2, "owner").decide(at=100)
    world.end("short").decide(at=600)
    assert world.log == ["mine stops long short"]
    assert world.due_at == 100 + 600 + 120
    world.end("long").decide(at=700)
    assert list(world.where) == ["mine"]


def test_a_moved_job_may_come_back_after_its_grace_period():
    world = World(node("n1", 1), node("n2", 1), rules=RULES, grace=500)
    world.runs("job", "n1/0", movable=True).maintain("n1/0").decide(at=10)
    world.decide(at=400)
    assert world.log == ["job moves"]
    world.decide(at=510)
    assert world.where == {"job": "n2/0"}


def test_a_beneficiary_keeps_within_its_quota():
    world = World(node("n1", 2), quotas=[quota("owner", limit(1, borrowing=0))], rules=RULES)
    world.grace = inf
    world.runs("b0", "n1/0", "borrower").runs("b1", "n1/1", "borrower")
    world.decide(at=100).submit("mine", 1, "owner").decide(at=100).decide(at=230).decide(at=360)
    world.submit("own", tenant="owner", request=Request(gpus=1, cpu=1), priority=3)
    world.end("b0").end("b1").decide(at=400)
    assert len([name for name in world.where if name in {"mine", "own"}]) == 1
