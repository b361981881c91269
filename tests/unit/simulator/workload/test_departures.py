# SPDX-License-Identifier: Apache-2.0
from math import inf
from random import Random

import pytest
from simulator_builders import job

from gpupack_simulator import InvalidParameter
from gpupack_simulator.inputs.openb import Pod
from gpupack_simulator.workload.departures import arrival_rate, departing_jobs

PODS = [Pod(f"pod-{n}", job("x", gpus).request) for n, gpus in enumerate([0, 1, 1, 2])]


def drawn(*, load=0.9, seed=0, until=5.0):
    return departing_jobs(PODS, load=load, capacity_milli=400_000, until=until, random=Random(seed))


def test_the_load_is_what_runs_on_average_for_each_gpu():
    assert arrival_rate(PODS, load=0.5, capacity_milli=400_000) == 200


def test_jobs_bring_about_the_load_that_is_asked():
    jobs = drawn(until=40.0)
    asked = sum(job.milli * job.duration for job in jobs) / 40.0 / 400_000
    assert asked == pytest.approx(0.9, rel=0.05)


def test_jobs_come_in_order_and_before_the_end():
    arrivals = [job.arrival for job in drawn()]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] < 5


def test_one_seed_draws_the_same_jobs():
    assert drawn() == drawn()
    assert drawn() != drawn(seed=1)


def test_a_load_of_nothing_is_refused():
    with pytest.raises(InvalidParameter, match="the load is 0; ask for more than 0"):
        drawn(load=0)


def test_jobs_without_end_are_refused():
    with pytest.raises(InvalidParameter, match="come and go for inf lifetimes; ask for an end"):
        drawn(until=inf)
    with pytest.raises(InvalidParameter, match="the load is inf"):
        drawn(load=inf)
