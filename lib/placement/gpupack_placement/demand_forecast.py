# SPDX-License-Identifier: Apache-2.0
"""The expected demand: the mix of requests, and whether jobs ever leave."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from gpupack_devices.errors import InvalidRequest
from gpupack_placement.extended import NO_AMOUNTS
from gpupack_placement.request import Request

TYPICAL = 0.95
"""Fraction of the pods that typical pods cover, as in the FGD paper."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests of one kind. `weight`: their fraction of all requests, 0 to 1."""

    request: Request
    weight: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise InvalidRequest(f"the weight of a demand is {self.weight}; it must be positive")


@dataclass(frozen=True, slots=True)
class RequestMix:
    """Demands, the most frequent first; their weights add up to 1. Empty: nothing is known."""

    demands: tuple[Demand, ...] = ()

    @classmethod
    def of(cls, counts: Iterable[tuple[Request, float]]) -> Self:
        """Make a mix from the counts of requests; requests of one kind are added up."""
        sums: dict[Request, float] = {}
        for request, count in counts:
            kind = kind_of(request)
            sums[kind] = sums.get(kind, 0.0) + count
        total = sum(sums.values())
        found = (Demand(request, count / total) for request, count in sums.items() if count > 0)
        return cls(tuple(sorted(found, key=lambda d: (-d.weight, repr(d.request)))))

    def typical(self, coverage: float = TYPICAL) -> Self:
        """Return the most frequent demands that cover `coverage` of all, with unchanged weights."""
        kept: list[Demand] = []
        covered = 0.0
        for demand in self.demands:
            if covered >= coverage:
                break
            kept.append(demand)
            covered += demand.weight
        return type(self)(tuple(kept))


@dataclass(frozen=True, slots=True)
class DemandForecast:
    """The expected demand.

    `churn`: recent departures per arrival; 0 if nothing leaves, about 1 in steady state.
    """

    mix: RequestMix = RequestMix()
    churn: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.churn) and self.churn >= 0):
            raise InvalidRequest(f"churn is {self.churn}; it must be 0 or more")


def kind_of(request: Request) -> Request:
    """Return the request without the parts that say nothing about GPUs."""
    if request.selector is None and not request.tolerations and not request.extended:
        return request
    return replace(request, selector=None, tolerations=(), extended=NO_AMOUNTS)
