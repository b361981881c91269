# SPDX-License-Identifier: Apache-2.0
"""Runs the worked examples of docs/queueing/concepts.md; times are minutes after 09:00."""

import pytest
from placement_builders import node
from queue_world import World, cohort, quota

from gpupack_queue import At, Rules, WaitReason

MINUTE = 60.0


def three_nodes(**kw):
    nodes = [node(name, 8, model="H100") for name in ("n1", "n2", "n3")]
    return World(*nodes, rules=Rules(), **kw)


def gpus(of_node, first, count):
    return " ".join(f"{of_node}/{number}" for number in range(first, first + count))


def borrowing():
    """Return the state of 09:10."""
    quotas = [quota(name, cohort="research", H100=8) for name in ("vision", "speech")]
    world = three_nodes(quotas=quotas, cohorts=[cohort("research")])
    world.runs("A", gpus("n1", 0, 8), "vision")
    world.now = 10 * MINUTE
    world.runs("B", gpus("n2", 0, 8), "vision")
    return world.runs("W", gpus("n3", 0, 6), "web", duration=110 * MINUTE)


def reclaimed():
    """Return the state of 09:30, after D has started."""
    world = borrowing()
    world.now = 30 * MINUTE
    return world.submit("D", 8, "speech").decide()


def reserved():
    """Return the state of 09:41: E has started, F has arrived."""
    world = reclaimed().decide(at=35 * MINUTE)
    world.now = 40 * MINUTE
    world.submit("E", 1, "vision", duration=60 * MINUTE).decide()
    world.now = 41 * MINUTE
    return world.submit("F", 1, "vision", duration=100 * MINUTE).decide()


def backfilled():
    """Return the state of 09:45, with E and G before B."""
    world = reserved()
    world.now = 45 * MINUTE
    return world.submit("G", 1, "vision", estimate=30 * MINUTE).decide()


def test_shares_are_those_of_the_first_step():
    usage = borrowing().queue.state.quota.usage
    assert usage.shares("vision") == pytest.approx((0, 8 / 24))
    assert usage.shares("web") == pytest.approx((6 / 24,))


def test_a_namespace_reclaims_its_quota_from_the_job_that_loses_least():
    world = reclaimed()
    assert world.log == ["D stops B", "D starts"]
    assert world.where["D"] == gpus("n2", 0, 8)


def test_the_queue_head_has_a_certain_start_once_it_has_a_reservation():
    world = reclaimed()
    assert world.explain("B").start == At(120 * MINUTE, is_estimated=True)
    assert world.decide(at=35 * MINUTE).explain("B").start == At(120 * MINUTE)


def test_a_job_that_would_outlast_the_start_of_the_reservation_waits():
    assert reserved().explain("F").reason is WaitReason.RESERVED


def test_a_job_is_backfilled_by_its_deadline_and_another_by_an_estimate():
    assert backfilled().log[2:] == ["E starts", "G starts"]


def test_a_job_that_outlasts_its_estimate_is_preempted_after_300_seconds():
    world = backfilled().decide(at=100 * MINUTE).end("E").decide().end("W").decide(at=120 * MINUTE)
    before = len(world.log)
    assert len(world.decide(at=125 * MINUTE - 1).log) == before
    assert world.decide(at=125 * MINUTE).log[before:] == ["B stops G", "B starts"]
    assert world.where["B"] == gpus("n3", 0, 8)


@pytest.mark.parametrize(("weight", "expected"), [(1.0, 12), (2.0, 16)])
def test_fair_sharing_preempts_until_shares_are_equal(weight, expected):
    world = three_nodes(quotas=[quota("lab", weight=weight)])
    for number in range(24):
        world.runs(f"w{number}", f"n{number // 8 + 1}/{number % 8}", "web")
    world.now = 2 * MINUTE
    for number in range(24):
        world.submit(f"l{number}", 1, "lab")
    for second in range(300):
        world.decide(at=2 * MINUTE + second)
    assert sum(name.startswith("l") for name in world.running) == expected
