# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from random import Random

import pytest
from simulator_builders import job

from gpupack_simulator import InvalidParameter
from gpupack_simulator.inputs.openb import Pod
from gpupack_simulator.workload.published import published_jobs

PODS = [Pod(f"pod-{n}", job("x", gpus).request) for n, gpus in enumerate([0, 1, 2, 4])]


def drawn(*, demand=1.3, seed=0, capacity=20_000, pods=PODS):
    return published_jobs(pods, demand=demand, capacity_milli=capacity, random=Random(seed))


def asked(jobs):
    return sum(job.milli for job in jobs)


def test_pods_come_until_the_demand_is_reached_and_no_longer():
    jobs = drawn()
    assert asked(jobs[:-1]) < 26_000 <= asked(jobs)


def test_every_pod_of_the_trace_comes_once_before_any_comes_again():
    requests = [job.request for job in drawn()[: len(PODS)]]
    assert Counter(requests) == Counter(pod.request for pod in PODS)


def test_a_trace_that_asks_for_more_is_thinned():
    jobs = drawn(demand=0.2)
    assert asked(jobs) >= 4000
    assert len(jobs) < 10


def test_the_order_of_the_file_does_not_matter():
    assert drawn() == drawn(pods=PODS[::-1])


def test_the_seed_does():
    assert drawn() != drawn(seed=1)


def test_a_trace_without_gpus_has_no_demand_to_reach():
    with pytest.raises(InvalidParameter, match="no pod asks for GPUs"):
        drawn(pods=PODS[:1])


def test_a_demand_of_nothing_is_refused():
    with pytest.raises(InvalidParameter, match="the demand is 0; ask for more than 0"):
        drawn(demand=0)
