# SPDX-License-Identifier: Apache-2.0
from math import inf

import pytest
from simulator_builders import job

from gpupack_simulator import InvalidParameter
from gpupack_simulator.arrivals import change_rate, offered_load, scale_to_load

JOBS = [job("a", 2, lasts=5), job("b", 1, at=4, lasts=inf), job("c", 4, at=10, lasts=3)]


def test_the_load_is_the_demand_until_the_last_arrival_divided_by_capacity():
    assert offered_load(JOBS, 4000) == pytest.approx((2 * 5 + 1 * 6) / (4 * 10))


def test_jobs_arrive_sooner_and_last_as_long():
    faster = change_rate(JOBS, 2)
    assert [one.arrival for one in faster] == [0, 2, 5]
    assert [one.duration for one in faster] == [5, inf, 3]


@pytest.mark.parametrize("load", [0.16, 0.41, 0.6])
def test_arrivals_are_scaled_to_a_load(load):
    jobs, factor = scale_to_load(JOBS, load, 4000)
    assert offered_load(jobs, 4000) == pytest.approx(load)
    assert jobs == change_rate(JOBS, factor)


@pytest.mark.parametrize("load", [0, -1, 0.1, 50, float("nan")])
def test_a_load_that_the_jobs_never_offer_is_refused(load):
    with pytest.raises(InvalidParameter, match="never offer a load of"):
        scale_to_load(JOBS, load, 4000)


@pytest.mark.parametrize("factor", [0, -1, inf, float("nan")])
def test_a_factor_that_makes_no_sense_is_refused(factor):
    with pytest.raises(InvalidParameter, match="times as fast"):
        change_rate(JOBS, factor)


def test_a_load_needs_gpus_and_time():
    for jobs, gpus in ((JOBS, 0), (JOBS[:1], 4000), ([], 4000)):
        with pytest.raises(InvalidParameter, match="a load needs GPUs"):
            offered_load(jobs, gpus)
