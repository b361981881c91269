# SPDX-License-Identifier: Apache-2.0
"""The drawn jobs have the distributions that are stated."""

from collections import Counter
from math import log10
from random import Random
from statistics import mean, median, stdev

import pytest

from gpupack_simulator import InvalidParameter
from gpupack_simulator.philly import DAY, MEAN_DURATION, SIZES, PhillyStyle, philly_jobs

STYLE = PhillyStyle(load=1.0, gpus=4000, days=10)


@pytest.fixture(scope="module")
def jobs():
    """Some twenty thousand."""
    return philly_jobs(STYLE, Random(3))


def test_one_seed_gives_one_trace(jobs):
    assert philly_jobs(STYLE, Random(3)) == jobs
    assert philly_jobs(STYLE, Random(4)) != jobs


def test_sizes_are_powers_of_two_and_mostly_one(jobs):
    counts = Counter(job.request.gpus for job in jobs)
    parts = {gpus: count / len(jobs) for gpus, count in counts.items()}
    assert parts == pytest.approx(SIZES, abs=0.015)


def test_durations_have_the_mean_and_variance_of_the_source_in_decades_of_minutes(jobs):
    """Of 80% 10^U(1.5, 3) and 20% 10^U(3, 4): 2.5, and 0.8·(1.5²/12 + 0.25²) + 0.2·(1/12 + 1)."""
    decades = [log10(job.duration / 60) for job in jobs]
    assert mean(decades) == pytest.approx(2.5, abs=0.02)
    assert stdev(decades) ** 2 == pytest.approx(0.41667, rel=0.04)
    assert median(job.duration for job in jobs) / 3600 == pytest.approx(5.3, rel=0.05)
    hours = MEAN_DURATION / 3600
    assert hours == pytest.approx(15.9, rel=0.01)


def test_the_average_demand_of_jobs_is_the_load(jobs):
    asked = len(jobs) / (STYLE.days * DAY) * mean(job.milli for job in jobs) * MEAN_DURATION
    assert asked / (STYLE.gpus * 1000) == pytest.approx(STYLE.load, rel=0.05)


def test_more_jobs_come_by_day_than_by_night(jobs):
    """The rate is 1 + a·sin: over its upper half 1 + 2a/π of the mean, over the lower 1 - 2a/π."""
    day = sum(job.arrival % DAY < DAY / 2 for job in jobs)
    assert day / len(jobs) == pytest.approx((1 + 2 * STYLE.swing / 3.14159) / 2, abs=0.015)
    flat = PhillyStyle(load=1.0, gpus=4000, days=10, swing=0)
    level = philly_jobs(flat, Random(3))
    assert sum(job.arrival % DAY < DAY / 2 for job in level) / len(level) == pytest.approx(
        0.5, abs=0.015
    )


def test_tenants_have_unequal_demands(jobs):
    counts = Counter(job.tenant for job in jobs)
    assert len(counts) == STYLE.tenants
    assert counts["tenant-1"] / counts["tenant-4"] == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"load": 0},
        {"gpus": 0},
        {"days": float("inf")},
        {"tenants": 0},
        {"swing": 1.5},
        {"days": 1e9},
    ],
)
def test_parameters_that_make_no_jobs_or_too_many_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        PhillyStyle(**{"load": 1.0, "gpus": 8, "days": 1, **wrong})
