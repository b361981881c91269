# SPDX-License-Identifier: Apache-2.0
"""GPUs that one tenant held for a while, cut into hours.

    start ├────┬──────────┬───────┬──────┤ end      holding
          │ 10 │    11    │  12 ╎ │  13  │          hours (UTC); ╎ prices changed

Only sums by hour are kept of a period. A holding that turns out longer or shorter than it was
counted is corrected by the difference: the sums plus the answer of `change` equal the sums with the
right figures from the start.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpupack_cost.amounts import SECONDS_PER_HOUR
from gpupack_cost.prices import Tariffs


class Key(NamedTuple):
    """The key of a sum.

    Attributes:
        hour: start of the hour, in seconds since the epoch.
        tariff: number of the price list.
        tenant: a namespace.
        cohort: cohort of the tenant; empty: none.
        job: name of the job; empty: the sum is not by job.
        model: label of the GPUs' model; empty: unknown.
    """

    hour: int
    tariff: int
    tenant: str
    cohort: str
    job: str
    model: str


Sums = dict[Key, float]
"""Milli-GPU times seconds."""


class Part(NamedTuple):
    """GPUs of one model."""

    model: str
    milli: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The GPUs that a tenant held from `start` to `end`, in seconds since the epoch."""

    tenant: str
    cohort: str
    job: str
    parts: tuple[Part, ...]
    start: float
    end: float


def hour_of(moment: float) -> int:
    """Return the start of the moment's hour, in seconds since the epoch."""
    return int(moment // SECONDS_PER_HOUR) * SECONDS_PER_HOUR


def allocated(holding: Holding, tariffs: Tariffs) -> Sums:
    """Return the amounts by hour; empty if the holding ends before it starts."""
    sums: Sums = {}
    for hour, tariff, seconds in _split_by_hour(holding.start, holding.end, tariffs):
        for part in holding.parts:
            key = Key(hour, tariff, holding.tenant, holding.cohort, holding.job, part.model)
            sums[key] = sums.get(key, 0.0) + part.milli * seconds
    return sums


def difference(before: Holding | None, after: Holding | None, tariffs: Tariffs) -> Sums:
    """Return what to add to sums with `before` so that they have `after`; no key has 0."""
    if before is not None and after is not None and _are_alike(before, after):
        return _difference_of_ends(before, after, tariffs)
    gone = allocated(before, tariffs) if before else {}
    come = allocated(after, tariffs) if after else {}
    return _difference(come, gone)


def _difference_of_ends(before: Holding, after: Holding, tariffs: Tariffs) -> Sums:
    """Compare only both ends, so that months that were counted already cost nothing."""
    latest_start, earliest_end = max(before.start, after.start), min(before.end, after.end)
    if latest_start >= earliest_end:
        return _difference(allocated(after, tariffs), allocated(before, tariffs))
    earlier = replace(after, end=min(before.start, after.end))
    later = replace(after, start=max(before.end, after.start))
    come = _summed(allocated(earlier, tariffs), allocated(later, tariffs))
    too_early = replace(before, end=min(after.start, before.end))
    too_late = replace(before, start=max(after.end, before.start))
    gone = _summed(allocated(too_early, tariffs), allocated(too_late, tariffs))
    return _difference(come, gone)


def _are_alike(one: Holding, other: Holding) -> bool:
    return replace(one, start=other.start, end=other.end) == other


def _split_by_hour(start: float, end: float, tariffs: Tariffs) -> Iterator[tuple[int, int, float]]:
    """Yield the hour, the number of the price list and the seconds of each piece."""
    changes = tariffs.changes
    while start < end:
        hour, number = hour_of(start), tariffs.number_at(start)
        until = min(end, hour + SECONDS_PER_HOUR, *changes[number : number + 1])
        yield hour, number, until - start
        start = until


def _summed(one: Sums, other: Sums) -> Sums:
    return {key: one.get(key, 0.0) + other.get(key, 0.0) for key in {**one, **other}}


def _difference(come: Sums, gone: Sums) -> Sums:
    found = {key: come.get(key, 0.0) - gone.get(key, 0.0) for key in {**come, **gone}}
    return {key: amount for key, amount in found.items() if amount}
