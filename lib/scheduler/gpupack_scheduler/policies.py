# SPDX-License-Identifier: Apache-2.0
"""The placement policies with the current forecast.

With a known forecast the policies learn it once, before the first decision, and decisions repeat
exactly. Otherwise a thread updates them whenever there is another forecast. Until that is done,
decisions use the previous one. All policies are updated, including those that have not been
requested yet: two processes that read the same forecast decide the same.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from gpupack_placement import POLICIES, DecisionError, DemandForecast, Policy, policy_named

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Interval between checks for a new forecast."""


class ForecastSource(Protocol):
    """A source of forecasts: a DemandLearner, or the published forecast."""

    def due(self) -> bool:
        """Tell whether there is a new forecast worth a read."""

    def take_forecast(self) -> DemandForecast:
        """Return the forecast: the expected requests, learned from earlier ones."""


class Policies:
    """All requested policies by name; confined to the thread of the event loop."""

    def __init__(
        self,
        default: str,
        learner: ForecastSource,
        *,
        known: DemandForecast | None = None,
        look: Callable[[str], Policy] = policy_named,
    ) -> None:
        self._default, self._learner, self._look = default, learner, look
        self._known, self._forecast = known, known
        self._informed: dict[str, Policy] = {}
        self._stale: set[str] = set()
        """Names of policies that do not have the present forecast."""

    def named(self, name: str | None = None) -> Policy:
        """Return the policy of this name (None: the default), with the present forecast.

        Raises:
            UnknownPolicy: the message lists those that exist.
        """
        key = name or self._default
        if key not in self._informed:
            self._informed[key] = self._first(self._look(key), key)
            self._stale.add(key)
        return self._informed[key]

    def all(self) -> dict[str | None, Policy]:
        """Return every policy, as `named` does; None is the key of the default."""
        return {None: self.named(), **{name: self.named(name) for name in POLICIES}}

    def _first(self, policy: Policy, key: str) -> Policy:
        try:
            return policy.informed(self._known) if self._known else policy
        except DecisionError as error:
            log.warning("policy %s decides without what is known: %s", key, error)
            return policy

    async def run(self) -> None:
        """Learn until cancelled, unless the forecast is fixed."""
        while self._known is None:
            if self._learner.due():
                self._forecast = self._learner.take_forecast()
                self._stale = {*self._informed, *POLICIES}
            await self._catch_up()
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.Event().wait()

    async def _catch_up(self) -> None:
        """Update policies that lack the present forecast; one that fails keeps the previous one."""
        forecast = self._forecast
        while forecast and self._stale:
            key = self._stale.pop()
            try:
                informed = await asyncio.to_thread(self.named(key).informed, forecast)
            except DecisionError as error:
                log.warning("policy %s goes on with what it knew: %s", key, error)
            else:
                self._informed[key] = informed
