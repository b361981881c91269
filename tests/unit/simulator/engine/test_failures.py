# SPDX-License-Identifier: Apache-2.0
from math import inf

import pytest
from simulator_builders import ends, job, node, run, starts

from gpupack_placement import DeviceUuid, NodeName
from gpupack_simulator import (
    Breakdown,
    Cause,
    Component,
    FailureRates,
    InvalidParameter,
    Sampling,
    draw_failures,
)


def gpu(name, index, *, at, until=inf):
    return Breakdown(Component(NodeName(name), DeviceUuid(f"{name}/{index}")), at, until)


def whole(name, *, at, until=inf):
    return Breakdown(Component(NodeName(name)), at, until)


def test_a_job_on_a_gpu_that_fails_starts_again_elsewhere():
    course = run([node("a", 2)], [job("one", lasts=10)], breakdowns=(gpu("a", 0, at=4),))
    record = course.jobs[0]
    assert (record.started, record.ended, record.attempts) == (4, 14, 2)
    assert record.placements[0].devices[0].uuid == "a/1"


def test_a_job_on_another_gpu_of_the_node_goes_on():
    jobs = [job("hit", lasts=10), job("spared", lasts=10)]
    course = run([node("a", 3)], jobs, breakdowns=(gpu("a", 0, at=4),))
    assert starts(course) == {"hit": 4, "spared": 0}


def test_the_work_that_is_lost_is_booked():
    course = run([node("a", 4)], [job("two", 2, lasts=10)], breakdowns=(gpu("a", 1, at=3),))
    loss = course.losses[0]
    assert (loss.job, loss.node, loss.cause, loss.milli_time) == (
        "two",
        "a",
        Cause.KILLED_WORK,
        6000,
    )


def test_a_gang_loses_all_workers_with_one_gpu():
    nodes = [node("a", 2), node("b", 2)]
    course = run(
        nodes, [job("gang", 2, workers=2, lasts=10)], breakdowns=(gpu("b", 0, at=3, until=5),)
    )
    assert starts(course) == {"gang": 5}
    assert course.jobs[0].wait == 2


def test_a_node_that_fails_takes_all_its_jobs_with_it_and_takes_none_until_it_is_repaired():
    jobs = [job("one", lasts=10), job("two", lasts=10)]
    course = run([node("a")], jobs, breakdowns=(whole("a", at=2, until=6),))
    assert starts(course) == {"one": 6, "two": 6}


def test_a_job_that_was_killed_keeps_its_place_in_the_queue():
    jobs = [job("first", 4, lasts=10), job("second", 4, at=1, lasts=1)]
    course = run([node("a")], jobs, breakdowns=(whole("a", at=2, until=3),))
    assert starts(course) == {"first": 3, "second": 13}


def test_jobs_are_killed_for_good_where_the_scenario_says_so():
    course = run([node("a")], [job("one", lasts=9)], breakdowns=(whole("a", at=2),), requeue=False)
    assert ends(course) == {"one": "killed"}
    assert course.jobs[0].ended == 2


def test_a_part_that_is_hit_twice_is_well_after_the_second_repair():
    hits = (gpu("a", 0, at=1, until=5), gpu("a", 0, at=2, until=8))
    course = run([node("a", 1)], [job("one", at=3, lasts=1)], breakdowns=hits)
    assert starts(course) == {"one": 8}
    assert [(outage.start, outage.end) for outage in course.outages] == [(1, 8)]


def test_an_outage_that_lasts_has_no_end():
    course = run([node("a", 2)], [job("one", lasts=9)], breakdowns=(gpu("a", 1, at=4),))
    assert [(outage.device, outage.start, outage.end) for outage in course.outages] == [
        ("a/1", 4, None)
    ]


def test_failed_capacity_is_counted_separately():
    course = run(
        [node("a", 2), node("b", 2)],
        [job("one", lasts=9)],
        until=5,
        breakdowns=(gpu("a", 1, at=1), whole("b", at=2)),
        sampling=Sampling(each_instant=True, causes=True),
    )
    assert course.samples[-1].free_by_cause[Cause.FAILED] >= 2000
    assert sum(course.samples[-1].free_by_cause.values()) == 3000


def test_a_repair_before_the_failure_is_refused():
    with pytest.raises(InvalidParameter, match="a fails at 4 and is repaired at 3"):
        whole("a", at=4, until=3)


def test_rates_draw_the_same_failures_for_the_same_seed_and_others_for_another():
    rates = FailureRates(gpu_between=50, gpu_repair=2, node_between=200)
    nodes = [node("a"), node("b")]
    first = draw_failures(rates, nodes, until=100, seed=1)
    assert first == draw_failures(rates, nodes, until=100, seed=1)
    assert first != draw_failures(rates, nodes, until=100, seed=2)


def test_rates_give_about_as_many_failures_as_they_say():
    found = draw_failures(
        FailureRates(gpu_between=9, gpu_repair=1), [node("a", 8)], until=1000, seed=4
    )
    assert 700 < len(found) < 900


def test_rates_without_an_end_are_refused():
    with pytest.raises(InvalidParameter, match="need a time at which the run ends"):
        draw_failures(FailureRates(gpu_between=9), [node("a")], until=inf, seed=0)


def test_mean_times_must_be_positive():
    with pytest.raises(InvalidParameter, match="must be positive"):
        FailureRates(gpu_repair=0)
