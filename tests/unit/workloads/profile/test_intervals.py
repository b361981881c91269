# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from gpupack_workloads.profile.intervals import length, length_outside, merged

TIMES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair))),
    max_size=12,
)


def seconds(intervals):
    """Return every whole number that an interval covers."""
    return {moment for start, end in intervals for moment in range(start, end)}


@given(TIMES)
def test_times_that_overlap_count_once(intervals):
    assert length(intervals) == len(seconds(intervals))


@given(TIMES, TIMES)
def test_the_part_of_intervals_outside_of_others_is_computed(intervals, others):
    assert length_outside(intervals, others) == len(seconds(intervals) - seconds(others))


def test_touching_times_are_one():
    assert merged([(5, 7), (1, 3), (3, 4), (6, 9)]) == [(1, 4), (5, 9)]
