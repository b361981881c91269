# SPDX-License-Identifier: Apache-2.0
"""The learned forecast (expected requests), as it is published to all processes that need it.

    scheduler ─ learns ─► status.demandForecast of GPUCohort `cluster` ─► Policies of all processes

The process that learned the forecast also reads it back from the watch. The published forecast is
rounded, and two processes that differ in the last digit of a price may choose different nodes.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from gpupack_crds.demand_forecast import MAX_DEMANDS, MAX_MODELS_ASKED, Demand, DemandForecast
from gpupack_crds.gpucohort import CLUSTER_NAME
from gpupack_placement import (
    DecisionError,
    Request,
    RequestMix,
    dump_forecast,
    load_forecast,
)
from gpupack_placement import Demand as RequestDemand
from gpupack_placement import DemandForecast as RequestForecast
from gpupack_placement.demand_forecast_document import SCHEMA
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores

MAX_CHURN_PERCENT: Final = 10_000
_COHORT: Final = ("", CLUSTER_NAME)


async def without_unservable(
    forecast: RequestForecast,
    can_serve: Callable[[Request], bool],
) -> RequestForecast:
    """Return the forecast without requests that no node could serve even if it were empty.

    A job with such a request waits for ever, so it says nothing about jobs that will be placed.
    Other tasks run between two calls of `can_serve`.
    """
    served: list[RequestDemand] = []
    for demand in forecast.mix.demands:
        if can_serve(demand.request):
            served.append(demand)
        await asyncio.sleep(0)
    mix = RequestMix.of((demand.request, demand.weight) for demand in served)
    return RequestForecast(mix, forecast.churn)


def to_status(forecast: RequestForecast) -> DemandForecast:
    """Convert the forecast into its form in the status: the most frequent demands only.

    Requests for more than MAX_MODELS_ASKED models are left out.
    """
    few = [each for each in forecast.mix.demands if len(each.request.models) <= MAX_MODELS_ASKED]
    mix = RequestMix(tuple(few[:MAX_DEMANDS]))
    churn = min(forecast.churn, MAX_CHURN_PERCENT / 100)
    document = dump_forecast(RequestForecast(mix, churn))
    return DemandForecast(
        churn_percent=document["churnPercent"],
        demands=msgspec.convert(document["demands"], tuple[Demand, ...]),
    )


def from_status(status: DemandForecast) -> RequestForecast:
    """Convert the status into a forecast: the reverse of `to_status`.

    Raises:
        InvalidSnapshot: a demand contains an invalid request.
    """
    fields = msgspec.to_builtins(status)
    churn, demands = fields.get("churnPercent", 0), list(fields.get("demands", ()))
    return load_forecast({"schema": SCHEMA, "churnPercent": churn, "demands": demands})


class PublishedForecast:
    """The forecast in the status of GPUCohort `cluster`, as a source for Policies."""

    def __init__(self, quotas: QuotaStores) -> None:
        self._cohorts = quotas.cohorts
        self._read: DemandForecast | None = None

    def due(self) -> bool:
        """Tell whether the status has another forecast than the one that was read last."""
        shown = self._shown
        return shown is not None and shown != self._read

    def take_forecast(self) -> RequestForecast:
        """Return the forecast of the status; an empty one if it is absent or cannot be read."""
        self._read = self._shown
        try:
            return from_status(self._read) if self._read else RequestForecast()
        except DecisionError:
            return RequestForecast()

    @property
    def _shown(self) -> DemandForecast | None:
        cohort = self._cohorts.items.get(_COHORT)
        return cohort.status.demand_forecast if cohort else None
