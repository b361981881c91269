# SPDX-License-Identifier: Apache-2.0
import pytest
from simulator_builders import ends, job, node, run, some_jobs, starts

from gpupack_placement import Cluster, Spread, decide, policy_named
from gpupack_simulator import (
    Cause,
    End,
    InvalidJob,
    InvalidParameter,
    Sampling,
    Settings,
    Simulator,
)
from gpupack_simulator.output.figures import figures

CAUSES = Sampling(each_instant=True, causes=True)


def test_a_job_that_arrives_when_another_ends_finds_its_place_free():
    jobs = [job("first", 4, lasts=5), job("second", 4, at=5, lasts=1)]
    assert starts(run([node("a")], jobs)) == {"first": 0, "second": 5}


def test_a_job_waits_from_its_arrival_to_its_start():
    course = run([node("a")], [job("first", 4, lasts=5), job("second", 1, at=2, lasts=1)])
    assert [record.wait for record in course.jobs] == [0, 3]


def test_a_run_ends_when_the_last_job_does():
    assert run([node("a")], [job("only", lasts=7)]).ended == 7


def test_a_run_ends_at_its_time_limit():
    course = run([node("a")], [job("only", lasts=70)], until=10)
    assert course.ended == 10
    assert ends(course) == {"only": "running"}


@pytest.mark.parametrize("sampling", [Sampling(every=1.0), Sampling(each_instant=True)])
def test_a_run_ends_when_the_running_jobs_never_end(sampling):
    jobs = [job("for ever", 4), job("waits", 1, at=3), job("short", 0, at=5, lasts=2)]
    simulator = Simulator([node("a")], jobs, "fgd", Settings(sampling=sampling))
    assert ends(simulator.run()) == {"for ever": "running", "waits": "waiting", "short": "waiting"}
    assert simulator.over


def test_capacity_before_the_first_arrival_counts_as_no_demand():
    course = run([node("a")], [job("late", 4, at=3, lasts=2)], sampling=CAUSES)
    assert [(s.time, s.free_by_cause) for s in course.samples] == [
        (0, {Cause.NO_DEMAND: 4000}),
        (3, {}),
        (5, {Cause.NO_DEMAND: 4000}),
    ]


def test_wasted_and_allocated_capacity_add_up_to_all_capacity():
    found = figures(run([node("a")], [job("late", 4, at=3, lasts=2)], sampling=CAUSES))
    assert found.waste.percent(Cause.NO_DEMAND) + found.allocation_percent == 100


def test_jobs_beyond_the_end_have_not_arrived():
    course = run([node("a")], [job("now", lasts=1), job("later", at=20)], until=10)
    assert ends(course) == {"now": "succeeded"}


def test_a_job_that_fits_not_even_the_empty_cluster_is_refused_with_the_reason():
    course = run([node("a")], [job("huge", 8), job("small", lasts=1)])
    assert ends(course) == {"huge": "dropped", "small": "succeeded"}
    assert "fewer than 8 GPUs" in course.jobs[0].reason


def test_a_gang_starts_as_a_whole_or_not_at_all():
    jobs = [job("one", 3, lasts=4), job("gang", 2, workers=3, lasts=1)]
    course = run([node("a"), node("b")], jobs)
    assert starts(course) == {"one": 0, "gang": 4}
    assert len(course.jobs[1].placements) == 3


def test_a_gang_keeps_to_its_spread():
    spread = Spread(one_worker_per_node=True)
    course = run([node("a"), node("b")], [job("gang", 1, workers=2, lasts=1, spread=spread)])
    assert {placement.node for placement in course.jobs[0].placements} == {"a", "b"}


def test_two_jobs_of_one_name_are_refused():
    with pytest.raises(InvalidJob, match="two jobs have the id same"):
        run([node("a")], [job("same"), job("same", at=1)])


def test_a_run_cannot_be_measured_from_beyond_its_end():
    with pytest.raises(InvalidParameter, match="from 0 to 5 cannot be measured from 6"):
        Settings(until=5, measured_from=6)


def test_an_unknown_discipline_is_refused_with_those_that_exist():
    with pytest.raises(InvalidParameter, match="use one of: backfill, drop, easy, fair-share"):
        run([node("a")], [job("any")], discipline="lifo")


def test_the_run_decides_as_core_does():
    jobs = [job(f"job-{n}", share=300 + 100 * (n % 4)) for n in range(9)]
    nodes = [node("a", 2), node("b", 4)]
    course = run(nodes, jobs, "best-fit", discipline="drop", seed=3)
    cluster = Cluster(nodes, tie_seed=3)
    for record in course.jobs:
        expected = decide(cluster, record.job.request, policy_named("best-fit"))
        assert record.placements == (expected,)
        cluster.take(record.job.id, expected)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("discipline", ["drop", "fifo", "fifo-skip", "backfill", "priority"])
def test_one_seed_gives_one_trace(discipline, seed):
    courses = [
        run([node("a"), node("b")], some_jobs(seed), "first-fit", discipline=discipline, seed=seed)
        for _ in range(2)
    ]
    assert courses[0].jobs == courses[1].jobs
    assert courses[0].samples == courses[1].samples
    assert courses[0].occupancy == courses[1].occupancy


def test_another_seed_breaks_ties_in_another_way():
    nodes = [node(name) for name in "abcdefgh"]
    hosts = {run(nodes, [job("one")], seed=n, until=1).jobs[0].placements[0].node for n in range(9)}
    assert len(hosts) > 1


def test_step_by_step_gives_the_same_as_all_at_once():
    simulator = Simulator([node("a"), node("b")], some_jobs(5), "best-fit")
    while simulator.step():
        pass
    assert simulator.record().jobs == run([node("a"), node("b")], some_jobs(5), "best-fit").jobs


def test_the_intermediate_state_lists_running_pending_and_future_jobs():
    jobs = [job("runs", 4, lasts=5), job("waits", 1, at=1, lasts=1), job("later", at=9)]
    simulator = Simulator([node("a")], jobs, "first-fit")
    simulator.advance(3)
    state = simulator.state()
    assert [(r.job.id, r.end) for r in state.jobs] == [
        ("runs", End.RUNNING),
        ("waits", End.WAITING),
    ]
    assert [j.id for j in state.expected] == ["later"]
    assert (state.time, state.sample.allocated_milli, state.sample.queued_jobs) == (3, 4000, 1)


def test_gpus_held_in_a_snapshot_stay_held():
    cluster = Cluster([node("a")])
    cluster.take("tenant", decide(cluster, job("x", 3).request, policy_named("first-fit")))
    simulator = Simulator(
        cluster,
        [job("two", 2, lasts=1), job("one", 1, lasts=1)],
        "first-fit",
        Settings(discipline="fifo-skip", until=5),
    )
    course = simulator.run()
    assert ends(course) == {"two": "waiting", "one": "succeeded"}
    assert course.samples[0].allocated_milli == 4000


def test_capacity_in_use_is_summed_from_the_end_of_the_warm_up():
    jobs = [job("long", 2, lasts=8), job("short", 1, at=4, lasts=3)]
    assert run([node("a")], jobs, measured_from=5).allocated_milli_time == 2000 * 3 + 1000 * 2


def test_samples_by_demand_are_taken_when_it_is_reached():
    jobs = [job(f"job-{n}", at=n) for n in range(6)]
    course = run([node("a")], jobs, discipline="drop", sampling=Sampling(demand_step=0.5))
    found = [(s.arrived_milli, s.allocated_milli) for s in course.samples]
    assert found == [(2000, 2000), (4000, 4000), (6000, 4000)]


def test_samples_at_intervals_see_what_happened_at_their_instant():
    course = run([node("a")], [job("only", 2, lasts=4)], sampling=Sampling(every=2))
    assert [(s.time, s.allocated_milli) for s in course.samples] == [(0, 2000), (2, 2000), (4, 0)]


def test_a_distance_of_zero_between_samples_is_refused():
    with pytest.raises(InvalidParameter, match="distance between samples must be positive"):
        Sampling(every=0)


def causes(nodes, jobs, **settings):
    sampling = Sampling(each_instant=True, causes=True)
    return dict(run(nodes, jobs, until=1, sampling=sampling, **settings).samples[-1].free_by_cause)


def test_capacity_without_requests_counts_as_no_demand():
    assert causes([node("a")], [job("one")]) == {Cause.NO_DEMAND: 3000}


def test_capacity_behind_the_first_in_line_is_held_back():
    jobs = [job("big", 3), job("next", 3), job("small", 1)]
    assert causes([node("a")], jobs) == {Cause.HELD_BACK: 1000}


def test_capacity_that_is_too_small_for_pending_jobs_counts_as_fragmented():
    jobs = [job("big", 3), job("next", 3)]
    assert causes([node("a"), node("b", 2)], jobs) == {
        Cause.FRAGMENTED: 1000,
        Cause.WRONG_KIND: 2000,
    }


def test_capacity_on_a_node_without_cpu_is_stranded():
    jobs = [job("greedy", 1, cpu=64_000), job("next", 1, cpu=1000)]
    assert causes([node("a")], jobs) == {Cause.STRANDED: 3000}
