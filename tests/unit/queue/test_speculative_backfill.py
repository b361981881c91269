# SPDX-License-Identifier: Apache-2.0
"""Speculative backfill on the durations of earlier jobs, and the cost of a wrong estimate."""

from math import inf
from os import environ

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from placement_builders import node
from queue_strategies import submitted
from queue_world import World, with_rules

from gpupack_queue import NO_PREEMPTION, PreemptionReason
from gpupack_queue.running.running_table import RunningTable

DELAY = 50.0
RULES = with_rules(
    by_share=False,
    by_priority=False,
    preemption=NO_PREEMPTION,
    reserve_after_seconds=0.0,
    max_reservations=1,
    max_backfill_delay_seconds=DELAY,
)


def full_until(end=100, **kw):
    """One GPU of n1 is free until «old» ends; «gang» wants both."""
    world = World(
        node("n1", 2),
        rules=with_rules(**{"preemption": NO_PREEMPTION, "reserve_after_seconds": 0} | kw),
    )
    return world.runs("old", "n1/0", duration=end).submit("gang", 2)


def test_only_a_job_that_is_expected_to_end_in_time_is_backfilled():
    world = full_until().submit("short", estimate=90.0).submit("long", estimate=110.0)
    assert world.decide(at=1).where == {"old": "n1/0", "short": "n1/1"}


def test_without_a_bounded_delay_no_job_is_backfilled_on_an_estimate():
    world = full_until(max_backfill_delay_seconds=inf).submit("short", estimate=90.0)
    assert "short" not in world.decide(at=1).where


def test_a_job_that_is_not_preemptible_is_not_backfilled_on_an_estimate():
    world = full_until().submit("short", estimate=90.0, preemptible=False)
    assert "short" not in world.decide(at=1).where


def test_a_backfilled_job_that_takes_too_long_is_preempted_after_the_bounded_delay():
    world = full_until(max_backfill_delay_seconds=DELAY).submit("liar", estimate=10.0).decide(at=1)
    world.end("old").decide(at=100)
    assert world.due_at == 100 + DELAY
    assert list(world.where) == ["liar"]
    world.decide(at=149)
    assert list(world.where) == ["liar"]
    found = world.queue.cycle(world.cluster, 150.0, world.plan).preemptions[0]
    assert [(victim.job, victim.reason) for victim in found.victims] == [
        ("liar", PreemptionReason.SPECULATIVE_BACKFILL)
    ]


def test_a_preempted_backfilled_job_waits_behind_the_queue_head():
    world = full_until(max_backfill_delay_seconds=DELAY).submit("liar", estimate=10.0).decide(at=1)
    world.end("old").decide(at=100).decide(at=150)
    assert list(world.where) == ["gang"]


def test_speculative_backfill_ends_once_the_queue_head_would_fit_without_backfilled_jobs():
    world = World(node("n1", 3), rules=RULES)
    world.runs("old", "n1/0 n1/1", duration=100.0).submit("gang", 3)
    world.submit("liar", estimate=10.0).decide(at=1)
    world.end("old").submit("more", estimate=1.0).decide(at=100)
    assert list(world.where) == ["liar"]


def test_only_backfilled_jobs_that_block_the_queue_head_are_preempted():
    world = World(node("n1", 2), node("n2", 1), rules=RULES)
    world.runs("old", "n1/0", duration=100.0).submit("gang", 2)
    world.submit("neighbor", estimate=10.0).submit("liar", estimate=10.0).decide(at=1)
    assert sorted(world.where) == ["liar", "neighbor", "old"]
    world.end("old").decide(at=100).decide(at=150)
    assert len(world.where) == 2
    assert world.where["gang"] == "n1/0 n1/1"


def test_a_job_beyond_its_estimate_is_expected_to_take_twice_as_long():
    census = RunningTable()
    world = World(node("n1", 1)).runs("old", "n1/0", estimate=10.0)
    (running,) = world.queue.state.running
    census.add(running)
    ends = [census.expected_ends(now).times.tolist() for now in (0.0, 9.0, 10.0, 35.0, 40.0)]
    assert ends == [[10.0], [10.0], [20.0], [40.0], [80.0]]


estimates = st.sampled_from([1.0, 4.0, 9.0, 30.0])
asks = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from([1, 1, 2, 3]),
        "workers": st.sampled_from([1, 1, 2]),
        "estimate": estimates,
    }
)
jobs = st.tuples(asks, st.sampled_from([2.0, 5.0, 9.0, 400.0]))
"""And how long they take, whatever was estimated."""
heads = st.fixed_dictionaries(
    {"gpus": st.integers(2, 4), "workers": st.integers(1, 2), "estimate": estimates}
)


class Course:
    """Jobs arrive one by one and last as long as they do, whatever was estimated."""

    def __init__(self, nodes, rules):
        self.world, self.ends, self.started = World(*nodes, rules=rules), {}, {}
        self.world.due_at = None

    def pass_until(self, time, lasts):
        world = self.world
        while True:
            due = [at for at in (*self.ends.values(), world.due_at or inf) if at > world.now]
            if min(due, default=inf) > time:
                break
            self.at(min(due), lasts)

    def at(self, time, lasts):
        world = self.world
        world.now = time
        for name in [name for name, end in self.ends.items() if end <= time]:
            del self.ends[name]
            world.end(name)
        world.decide()
        for name in self.ends.keys() - world.running.keys():
            del self.ends[name]
        for name in world.running.keys() - self.ends.keys():
            self.started[name] = time
            self.ends[name] = time + lasts[name]


def start_of_first(nodes, running, head, behind):
    """Return when the queue head starts after the running jobs; None: not all of those run."""
    course, lasts = Course(nodes, RULES), {}
    for number, (ask, seconds) in enumerate([*running, (head, 5.0), *behind]):
        lasts[f"j{number}"] = seconds
        submitted(course.world, [ask], at=course.world.now)
        course.at(course.world.now, lasts)
        if number >= len(running):
            later = course.world.now + 0.5
            course.pass_until(later, lasts)
            course.at(later, lasts)
    course.pass_until(5000.0, lasts)
    if any(course.started.get(f"j{number}") != 0 for number in range(len(running))):
        return None
    return course.started.get(f"j{len(running)}", inf)


@pytest.mark.timeout(600)
@settings(max_examples=max(100, int(environ.get("GPUPACK_TEST_CASES", "0"))), deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(jobs, min_size=1, max_size=4),
    heads,
    st.lists(jobs, min_size=5, max_size=5),
)
def test_a_wrong_estimate_delays_the_queue_head_by_no_more_than_the_bound(
    sizes, running, head, behind
):
    """The bound holds against a run without any job behind the queue head."""
    nodes = [node(f"n{number}", size) for number, size in enumerate(sizes)]
    alone = start_of_first(nodes, running, head, [])
    assume(alone is not None)
    assert start_of_first(nodes, running, head, behind) <= alone + DELAY
