# SPDX-License-Identifier: Apache-2.0
"""JSON and CSV."""

import csv
import json

from run_builders import done, dropped, held, lost, run, running, sample, waiting

from gpupack_simulator.output.digest import POINTS, digest
from gpupack_simulator.output.results import SCHEMA, csv_table, jobs_csv, results, run_json
from gpupack_simulator.record import TimeUnit


def busy(**kw):
    """One job that waited two lifetimes and one that waits still."""
    defaults = {
        "time_unit": TimeUnit.LIFETIME,
        "jobs": (done("a", 2, start=2, duration=4), waiting("b", now=10)),
        "samples": (sample(0, 0, queued=2, fragmented=0), sample(2, 2000, queued=1)),
        "allocated_milli_time": 8000.0,
    }
    return run(**(defaults | kw))


def figures_of(run, policy="fgd", seed="0"):
    return results([digest(run)])["results"][policy][seed]


def test_results_are_found_by_policy_and_seed():
    digests = [digest(busy(policy=p, seed=s)) for p in ("fgd", "best-fit") for s in (0, 1)]
    found = results(digests)
    assert found["schema"] == SCHEMA
    assert {p: sorted(seeds) for p, seeds in found["results"].items()} == {
        "fgd": ["0", "1"],
        "best-fit": ["0", "1"],
    }


def test_the_published_experiment_tells_allocation_at_both_demands():
    samples = (sample(0, 3000, arrived=4000), sample(1, 3600, arrived=5200))
    found = figures_of(run(time_unit=TimeUnit.ARRIVAL, samples=samples, ended=1.0))
    assert (found["allocation_percent_at_100"], found["allocation_percent_at_130"]) == (75, 90)


def test_without_a_clock_there_are_no_waits():
    found = figures_of(run(time_unit=TimeUnit.ARRIVAL, samples=(sample(0, 0),)))
    assert not [name for name in found if "wait" in name and name != "jobs_waiting"]


def test_with_departures_there_are_allocation_and_waits_by_size():
    found = figures_of(busy())
    assert found["allocation_percent"] == 20
    assert found["wait_lifetimes"] == {"one": 10, "2-3": 2}


def test_waits_in_another_unit_are_divided_by_the_mean_duration():
    jobs = (done("a", start=6, duration=3),)
    found = figures_of(run(jobs=jobs, time_unit=TimeUnit.SECOND))
    assert found["wait_mean_seconds"] == {"one": 6}
    assert found["wait_lifetimes"] == {"one": 2}


def test_waste_names_its_unit():
    samples = (sample(0, 0, free_by_cause={"fragmented": 4000}),)
    found = figures_of(run(samples=samples, time_unit=TimeUnit.SECOND, ended=3600.0))
    assert found["wasted_gpu_hours"] == {"fragmented": 4}
    assert found["wasted_percent"] == {"fragmented": 100}


def test_parameters_that_all_runs_share_are_written_once():
    runs = (busy(parameters={"load": 0.9, "x": 1}), busy(seed=1, parameters={"load": 0.9, "x": 2}))
    assert results([digest(one) for one in runs])["parameters"] == {"load": 0.9}


def test_a_line_of_the_csv_is_one_run():
    lines = list(csv.DictReader(csv_table([digest(busy()), digest(busy(seed=1))]).splitlines()))
    assert [(line["policy"], line["seed"]) for line in lines] == [("fgd", "0"), ("fgd", "1")]
    assert lines[0]["wait_lifetimes.2-3"] == "2.0"


def test_runs_that_know_different_things_share_a_csv():
    lost_some = busy(seed=1, losses=(lost(1.0, 1000.0),))
    first, second = csv.DictReader(csv_table([digest(busy()), digest(lost_some)]).splitlines())
    assert (first["wasted_percent.killed-work"], second["wasted_percent.killed-work"]) == (
        "",
        "2.5",
    )


def test_no_runs_are_valid_json_and_csv():
    assert json.loads(json.dumps(results([])))["results"] == {}
    assert csv_table([]) == "policy,seed\n"


def test_a_line_of_the_jobs_is_one_job():
    jobs = (
        done("a", 2, start=2, duration=4),
        running("b", start=1, node="n1"),
        dropped("c"),
    )
    first, second, third = csv.DictReader(jobs_csv(run(jobs=jobs)).splitlines())
    assert (first["job"], first["size"], first["wait_steps"], first["end"]) == (
        "a",
        "2-3",
        "2.0",
        "succeeded",
    )
    assert second["nodes"] == "n1"
    assert third["reason"] == "no room"


def test_a_run_has_series_over_time_and_figures_by_node():
    one = busy(occupancy=(held("n1/0", "a", 2, 6), held("n1/1", "a", 2, 6)))
    found = run_json(one, digest(one))
    assert found["series"]["allocation_percent"] == {"times": [0, 2], "values": [0, 50]}
    assert found["node_allocation_percent"] == {"n1": 40, "n2": 0}


def test_a_long_run_is_thinned_out_and_keeps_its_mean():
    samples = tuple(sample(t, 1000 * (t % 4)) for t in range(3 * POINTS))
    one = digest(run(samples=samples, ended=3.0 * POINTS))
    assert len(one.allocation.times) <= POINTS
    assert abs(one.allocation.mean(0, 3.0 * POINTS) - 37.5) < 0.01
