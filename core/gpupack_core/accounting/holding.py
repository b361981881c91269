# SPDX-License-Identifier: Apache-2.0
"""GPUs that one tenant held for a while, cut into hours.

    start ├────┬──────────┬───────┬──────┤ end      holding
          │ 10 │    11    │  12 ╎ │  13  │          hours (UTC); ╎ prices changed

Of a period only sums by hour are kept, so a holding that turns out to have been longer or shorter
than it was counted is corrected by the difference: what `change` answers added to the sums is as if
it had been counted rightly at first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpupack_core.accounting.amounts import SECONDS_PER_HOUR
from gpupack_core.accounting.prices import Tariffs


class Key(NamedTuple):
    """What sums are kept by.

    Attributes:
        hour: seconds since the epoch at which it begins.
        tariff: number of the price list.
        tenant: a namespace.
        cohort: of the tenant; empty: none.
        job: empty: it is not asked.
        model: label of the GPUs' model; empty: nobody knows it.
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
    """What somebody held from `start` to `end`, in seconds since the epoch."""

    tenant: str
    cohort: str
    job: str
    parts: tuple[Part, ...]
    start: float
    end: float


def hour_of(moment: float) -> int:
    """The beginning of its hour."""
    return int(moment // SECONDS_PER_HOUR) * SECONDS_PER_HOUR


def allocated(holding: Holding, tariffs: Tariffs) -> Sums:
    """By hour; nothing where it ends before it starts."""
    sums: Sums = {}
    for hour, tariff, seconds in _pieces(holding.start, holding.end, tariffs):
        for part in holding.parts:
            key = Key(hour, tariff, holding.tenant, holding.cohort, holding.job, part.model)
            sums[key] = sums.get(key, 0.0) + part.milli * seconds
    return sums


def change(before: Holding | None, after: Holding | None, tariffs: Tariffs) -> Sums:
    """What to add to sums that have `before` so that they have `after`; no key of 0."""
    if before is not None and after is not None and _are_alike(before, after):
        return _moved(before, after, tariffs)
    gone = allocated(before, tariffs) if before else {}
    come = allocated(after, tariffs) if after else {}
    return _difference(come, gone)


def _moved(before: Holding, after: Holding, tariffs: Tariffs) -> Sums:
    """Of months that were counted already only both ends are looked at."""
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


def _pieces(start: float, end: float, tariffs: Tariffs) -> Iterator[tuple[int, int, float]]:
    """Hour, price list and seconds."""
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
