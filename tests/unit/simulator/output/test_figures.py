# SPDX-License-Identifier: Apache-2.0
"""The figures of a run, against values worked out by hand."""

import pytest
from run_builders import done, dropped, held, lost, node, run, running, sample, waiting

from gpupack_simulator.job import Size
from gpupack_simulator.output.figures import figures
from gpupack_simulator.output.usage import usage
from gpupack_simulator.record import Cause, End, TimeUnit


def test_allocation_is_what_was_held_by_what_could_have_been():
    found = figures(run(allocated_milli_time=20_000.0))
    assert found.allocation_percent == 50


def test_allocation_is_measured_after_the_warm_up():
    found = figures(run(allocated_milli_time=8_000.0, measured_from=6.0))
    assert found.allocation_percent == 50


def test_without_a_clock_the_allocation_is_that_of_the_end():
    samples = (sample(0, 1000, arrived=1000), sample(1, 3000, arrived=3000))
    found = figures(run(time_unit=TimeUnit.ARRIVAL, samples=samples, ended=1.0))
    assert found.allocation_percent == 75


def test_allocation_at_a_demand_is_read_when_so_much_has_arrived():
    samples = (
        sample(0, 2000, arrived=2000),
        sample(1, 3000, arrived=4000),
        sample(2, 3500, arrived=5199),
    )
    found = figures(run(time_unit=TimeUnit.ARRIVAL, samples=samples, ended=2.0))
    assert found.allocation_percent_at == {100: 75, 130: None}


def test_fragmentation_is_a_mean_over_time_in_percent_of_capacity():
    samples = (sample(0, 0, fragmented=400), sample(5, 0, fragmented=1200))
    assert figures(run(samples=samples)).fragmentation_percent == 20


def test_fragmentation_that_was_not_sampled_is_unknown():
    assert figures(run(samples=(sample(0, 0),))).fragmentation_percent is None


def test_waits_are_shown_by_job_size():
    jobs = (
        done("a", at=0, start=0, duration=2),
        done("b", at=0, start=4, duration=2),
        done("c", 8, at=1, start=10, duration=1),
    )
    found = figures(run(jobs=jobs))
    assert found.waits[Size.ONE].mean == 2
    assert found.waits[Size.NODE].mean == 9
    assert found.wait_mean == (0 + 4 + 9) / 3
    assert set(found.waits) == {Size.ONE, Size.NODE}


def test_a_job_that_waits_still_counts_with_its_wait_so_far():
    jobs = (done("a", start=0, duration=2), waiting("b", at=4, now=10))
    found = figures(run(jobs=jobs)).waits[Size.ONE]
    assert (found.mean, found.still_waiting) == (3, 1)


def test_jobs_of_the_warm_up_and_dropped_ones_have_no_wait():
    jobs = (
        done("a", at=1, start=9, duration=1),
        done("b", at=5, start=6, duration=1),
        dropped("c"),
    )
    found = figures(run(jobs=jobs, measured_from=5.0))
    assert found.waits[Size.ONE].jobs == 1
    assert found.wait_mean == 1


def test_slowdown_is_the_time_in_the_system_by_the_duration():
    jobs = (done("a", start=0, duration=2), done("b", start=6, duration=2))
    found = figures(run(jobs=jobs)).waits[Size.ONE]
    assert found.slowdown_median == (1 + 4) / 2
    assert found.slowdown_overall == (2 + 8) / 4


def test_the_makespan_is_from_the_first_submission_to_the_last_end():
    jobs = (done("a", at=1, start=2, duration=2), done("b", at=3, start=3, duration=5))
    assert figures(run(jobs=jobs)).makespan == 7


def test_while_a_job_runs_there_is_no_makespan():
    jobs = (done("a", start=2, duration=2), running("b", start=3, node="n1"))
    assert figures(run(jobs=jobs)).makespan is None


def test_the_queue_is_a_mean_over_time():
    found = figures(run(samples=(sample(0, 0, queued=4), sample(5, 0, queued=1))))
    assert (found.queue_mean, found.queue_longest) == (2.5, 4)


def test_jobs_are_counted_by_how_they_ended():
    jobs = (done("a", start=0, duration=1), dropped("b"), dropped("c"))
    assert figures(run(jobs=jobs)).jobs == {End.SUCCEEDED: 1, End.DROPPED: 2}


def test_waste_is_what_was_free_by_cause_over_time():
    samples = (
        sample(0, 1000, free_by_cause={"fragmented": 3000}),
        sample(5, 3000, free_by_cause={"stranded": 1000}),
    )
    found = figures(run(samples=samples)).waste
    assert found.gpu_time == {Cause.FRAGMENTED: 15, Cause.STRANDED: 5}
    assert found.percent(Cause.FRAGMENTED) == 37.5
    assert found.unit == "GPU-steps"


def test_waste_in_seconds_is_counted_in_gpu_hours():
    samples = (sample(0, 0, free_by_cause={"no-demand": 4000}),)
    found = figures(run(samples=samples, time_unit=TimeUnit.SECOND, ended=7200.0)).waste
    assert (found.gpu_time[Cause.NO_DEMAND], found.unit, found.total) == (8, "GPU-hours", 8)


def test_the_warm_up_wastes_nothing():
    samples = (sample(0, 0, free_by_cause={"no-demand": 4000}),)
    found = figures(run(samples=samples, measured_from=8.0)).waste
    assert found.gpu_time[Cause.NO_DEMAND] == found.total == 8


def test_work_lost_by_failures_is_wasted_too():
    found = figures(run(losses=(lost(3.0, 2000.0), lost(4.0, 500.0))))
    assert found.waste.gpu_time == {Cause.KILLED_WORK: 2.5}
    assert found.killed_attempts == 2


def test_without_a_clock_waste_is_what_is_free_at_the_end():
    samples = (
        sample(0, 0, free_by_cause={"no-demand": 4000}),
        sample(1, 3000, free_by_cause={"fragmented": 1000}),
    )
    found = figures(run(samples=samples, time_unit=TimeUnit.ARRIVAL, ended=1.0)).waste
    assert found.gpu_time == {Cause.FRAGMENTED: 1}
    assert found.percent(Cause.FRAGMENTED) == 25


def test_a_run_in_which_nothing_happens_has_no_figures_and_no_error():
    found = figures(run(nodes=(), ended=0.0))
    assert (found.allocation_percent, found.wait_mean, found.queue_mean) == (None, None, None)


def test_the_use_of_nodes_is_computed_from_holdings():
    found = usage(run(occupancy=(held("n1/0", "a", 0, 5), held("n1/1", "b", 5, None, 500))))
    assert found.mean.tolist() == [37.5, 0]


def test_the_use_of_nodes_is_read_from_samples_where_they_have_it():
    samples = (
        sample(0, 0, allocated_by_node={"n1": 2000}),
        sample(5, 0, allocated_by_node={"n2": 1000}),
    )
    assert usage(run(samples=samples)).mean.tolist() == [50, 25]


def test_without_a_clock_the_use_of_nodes_is_that_of_the_jobs_that_run_at_the_end():
    jobs = (running("a", 2, start=0, node="n1"), dropped("b"))
    found = usage(run(jobs=jobs, time_unit=TimeUnit.ARRIVAL, ended=2.0))
    assert found.mean.tolist() == [100, 0]


def test_a_node_without_gpus_has_no_use():
    nodes = (node("n1", 1), node("cpu", 0))
    found = usage(run(nodes=nodes, occupancy=(held("n1/0", "a", 0, 10),)))
    assert found.mean[0] == 100
    assert found.mean[1] != found.mean[1]


def test_the_use_of_nodes_may_be_unknown():
    assert usage(run()) is None
    assert usage(run(nodes=())) is None


@pytest.mark.parametrize("unit", list(TimeUnit))
def test_every_unit_of_time_has_figures(unit):
    samples = (sample(0, 1000, arrived=1000, fragmented=0),)
    found = figures(run(samples=samples, time_unit=unit, allocated_milli_time=10_000.0))
    assert found.allocation_percent == 25
