# SPDX-License-Identifier: Apache-2.0
"""Lengths of times that overlap. Intervals are pairs of start and end, in one unit."""

from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same times as intervals that do not touch, in order."""
    result: list[Interval] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def length(intervals: Iterable[Interval]) -> float:
    """Return how long any of these lasts; what overlaps counts once."""
    return sum(end - start for start, end in merged(intervals))


def length_outside(intervals: Iterable[Interval], others: Sequence[Interval]) -> float:
    """Return how long any of these lasts while none of the others does."""
    return length([*intervals, *others]) - length(others)
