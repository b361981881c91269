# SPDX-License-Identifier: Apache-2.0
"""Learning of the mix from arrivals, and of the churn from departures.

Old arrivals fade: all counts are halved after every HORIZON arrivals, so a kind that no longer
arrives is forgotten. Then, and whenever there are more than MAX_KINDS, only the most common KINDS
are kept. What is learned depends only on the order of calls, never on a clock: the same trace gives
the same result.
"""

from gpupack_placement.demand_forecast import DemandForecast, RequestMix, kind_of
from gpupack_placement.request import Request

FIRST_FORECAST_ARRIVALS = 25
"""Arrivals before the first forecast; later forecasts follow each doubling of the arrivals.

The number is small, since nothing is known of the requested models and memory until then: a cluster
of 400 GPUs is half full after 200."""
MAX_ARRIVALS_BETWEEN_FORECASTS = 1600
"""Maximum number of arrivals between forecasts."""
FADE_ARRIVALS = 16_384
KINDS_AFTER_FADE = 512
MAX_KINDS = 2 * KINDS_AFTER_FADE
"""Maximum number of kinds; users who create pods can invent any number of kinds."""


class DemandLearner:
    """Counts requests by kind; bounded, not thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[Request, float] = {}
        self._arrivals = self._departures = 0.0
        self._seen = 0
        self._due_at = FIRST_FORECAST_ARRIVALS

    def record_arrival(self, request: Request) -> None:
        """Count a request that arrived, placed or not."""
        kind = kind_of(request)
        self._counts[kind] = self._counts.get(kind, 0.0) + 1
        self._arrivals += 1
        self._seen += 1
        if self._seen % FADE_ARRIVALS == 0:
            self._fade()
        elif len(self._counts) > MAX_KINDS:
            self._counts = dict(self._most_frequent())

    def record_departure(self, request: Request) -> None:
        """Count the departure of a request that was placed."""
        del request
        self._departures += 1

    def due(self) -> bool:
        """Tell whether enough requests arrived since the last forecast to take a new one."""
        return self._seen >= self._due_at

    def take_forecast(self) -> DemandForecast:
        """Return the expected requests, and schedule the next forecast."""
        self._due_at = self._seen + min(
            max(self._seen, FIRST_FORECAST_ARRIVALS), MAX_ARRIVALS_BETWEEN_FORECASTS
        )
        return self.peek()

    def peek(self) -> DemandForecast:
        """Return the forecast without a change of when the next one is due."""
        churn = self._departures / self._arrivals if self._arrivals else 0.0
        return DemandForecast(RequestMix.of(self._counts.items()), churn)

    def _fade(self) -> None:
        self._arrivals /= 2
        self._departures /= 2
        self._counts = {kind: count / 2 for kind, count in self._most_frequent()}

    def _most_frequent(self) -> list[tuple[Request, float]]:
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1], repr(item[0])))
        return ordered[:KINDS_AFTER_FADE]
