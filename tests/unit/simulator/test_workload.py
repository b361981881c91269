# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from math import inf
from random import Random

import pytest
from simulator_builders import job

from gpupack_simulator import InvalidParameter
from gpupack_simulator.inputs.openb import Pod
from gpupack_simulator.workload import arrival_rate, departing_jobs, published_jobs

TRACE = [Pod(f"pod-{n}", job("x", gpus).request) for n, gpus in enumerate([0, 1, 2, 4])]


def published(*, demand=1.3, seed=0, capacity=20_000, pods=TRACE):
    return published_jobs(pods, demand=demand, capacity_milli=capacity, random=Random(seed))


def asked(jobs):
    return sum(job.milli for job in jobs)


def test_pods_come_until_the_demand_is_reached_and_no_longer():
    jobs = published()
    assert asked(jobs[:-1]) < 26_000 <= asked(jobs)


def test_every_pod_of_the_trace_comes_once_before_any_comes_again():
    requests = [job.request for job in published()[: len(TRACE)]]
    assert Counter(requests) == Counter(pod.request for pod in TRACE)


def test_a_trace_beyond_the_load_is_thinned():
    jobs = published(demand=0.2)
    assert asked(jobs) >= 4000
    assert len(jobs) < 10


def test_the_order_of_the_file_does_not_matter():
    assert published() == published(pods=TRACE[::-1])


def test_the_seed_does():
    assert published() != published(seed=1)


def test_a_trace_without_gpus_has_no_demand_to_reach():
    with pytest.raises(InvalidParameter, match="no pod requests GPUs"):
        published(pods=TRACE[:1])


def test_a_demand_of_nothing_is_refused():
    with pytest.raises(InvalidParameter, match="the demand is 0; ask for more than 0"):
        published(demand=0)


PODS = [Pod(f"pod-{n}", job("x", gpus).request) for n, gpus in enumerate([0, 1, 1, 2])]


def departing(*, load=0.9, seed=0, until=5.0):
    return departing_jobs(PODS, load=load, capacity_milli=400_000, until=until, random=Random(seed))


def test_the_load_is_what_runs_on_average_for_each_gpu():
    assert arrival_rate(PODS, load=0.5, capacity_milli=400_000) == 200


def test_jobs_cause_the_requested_load():
    jobs = departing(until=40.0)
    asked = sum(job.milli * job.duration for job in jobs) / 40.0 / 400_000
    assert asked == pytest.approx(0.9, rel=0.05)


def test_jobs_come_in_order_and_before_the_end():
    arrivals = [job.arrival for job in departing()]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] < 5


def test_one_seed_draws_the_same_departing_jobs():
    assert departing() == departing()
    assert departing() != departing(seed=1)


def test_a_load_of_nothing_is_refused():
    with pytest.raises(InvalidParameter, match="the load is 0; ask for more than 0"):
        departing(load=0)


def test_jobs_without_end_are_refused():
    with pytest.raises(InvalidParameter, match="come and go for inf lifetimes; ask for an end"):
        departing(until=inf)
    with pytest.raises(InvalidParameter, match="the load is inf"):
        departing(load=inf)
