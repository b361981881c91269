# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st
from placement_strategies import cases

from gpupack_queue import DurationEstimates, Tenant
from gpupack_queue.running.durations import MAX_NAMES, MAX_SAMPLES, MAX_TENANTS, MIN_SAMPLES

A = Tenant("a")


def learned(*seconds):
    durations = DurationEstimates()
    for each in seconds:
        durations.learn(A, "train", each)
    return durations


def test_there_is_no_estimate_before_a_few_jobs_have_ended():
    assert learned(*[60.0] * (MIN_SAMPLES - 1)).estimate(A, "train") is None
    assert learned(*[60.0] * MIN_SAMPLES).estimate(A, "train") == 60


def test_hardly_any_job_of_the_name_exceeds_the_estimate():
    assert learned(*range(1, 11)).estimate(A, "train") == 10
    assert learned(*range(1, 21)).estimate(A, "train") == 19


def test_names_of_other_tenants_say_nothing():
    assert learned(*[60.0] * MIN_SAMPLES).estimate(Tenant("b"), "train") is None


def test_a_stopped_job_counts_if_it_took_longer_than_expected():
    durations = learned(*[60.0] * MIN_SAMPLES)
    durations.learn(A, "train", 10.0, completed=False)
    durations.learn(A, "train", 500.0, completed=False)
    assert durations.estimate(A, "train") == 500


def test_an_immediate_failure_does_not_shorten_the_estimate():
    durations = DurationEstimates()
    for _ in range(MIN_SAMPLES):
        durations.learn(A, "train", 1.0, completed=False)
    assert durations.estimate(A, "train") is None


def test_a_moment_that_was_no_time_is_not_learned():
    assert len(learned(0.0, -3.0, float("inf"), float("nan"))) == 0


@cases
@given(st.lists(st.floats(0.001, 1e6), min_size=MIN_SAMPLES, max_size=3 * MAX_SAMPLES))
def test_the_estimate_is_one_of_the_last_durations_and_few_of_them_are_longer(seconds):
    estimate, last = learned(*seconds).estimate(A, "train"), seconds[-MAX_SAMPLES:]
    assert estimate in last
    assert sum(each > estimate for each in last) <= len(last) / 10


def test_many_names_of_one_tenant_do_not_affect_other_tenants():
    durations = learned(*[60.0] * MIN_SAMPLES)
    for number in range(10 * MAX_NAMES):
        durations.learn(Tenant("many"), f"name-{number}", 1.0)
    assert len(durations) == 1 + MAX_NAMES
    assert durations.estimate(A, "train") == 60


def test_the_number_of_tenants_with_estimates_is_limited():
    durations = DurationEstimates()
    for number in range(MAX_TENANTS + 5):
        durations.learn(Tenant(f"t{number}"), "train", 1.0)
    assert len(durations) == MAX_TENANTS
