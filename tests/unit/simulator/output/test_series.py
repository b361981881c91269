# SPDX-License-Identifier: Apache-2.0
"""Quantities over time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpupack_simulator.output.series import Steps

UP = Steps.of([0, 2, 6], [10, 20, 40], 10)


def test_a_mean_weighs_each_value_by_how_long_it_held():
    assert UP.mean(0, 10) == (2 * 10 + 4 * 20 + 4 * 40) / 10


def test_a_mean_over_a_part_counts_that_part_alone():
    assert UP.mean(4, 8) == 30


def test_a_window_without_length_has_the_value_in_force():
    assert UP.mean(3, 3) == 20


def test_nothing_known_has_no_mean():
    assert Steps.of([], [], 10).mean(0, 10) is None


def test_the_last_of_several_values_at_one_instant_counts():
    assert Steps.of([0, 0, 5], [1, 3, 7], 10).mean(0, 10) == 5


def test_a_series_has_no_value_before_its_start_and_after_its_end():
    late = Steps.of([2, 4], [1, 3], 8)
    assert np.isnan(late.at(np.array([1.0, 9.0]))).all()
    assert np.isnan(late.means(np.array([0.0, 4.0, 8.0, 12.0]))).tolist() == [True, False, True]


def test_means_of_intervals_are_exact_between_instants():
    assert UP.means(np.array([0.0, 4.0, 8.0])).tolist() == [15, 30]


def test_several_quantities_change_together():
    both = Steps.of([0, 5], np.array([[0.0, 2.0], [4.0, 2.0]]), 10)
    assert both.means(np.array([0.0, 10.0])).tolist() == [[2, 2]]


@given(
    st.lists(st.tuples(st.floats(0.01, 10), st.floats(-100, 100)), min_size=1, max_size=20),
    st.integers(1, 12),
)
def test_the_mean_of_equal_intervals_is_the_mean_of_the_whole(changes, bins):
    times = np.cumsum([0.0, *(gap for gap, _ in changes)])
    steps = Steps.of(list(times[:-1]), [value for _, value in changes], float(times[-1]))
    means = steps.means(np.linspace(0, times[-1], bins + 1))
    assert np.isclose(means.mean(), steps.mean(0, float(times[-1])), atol=1e-6)
