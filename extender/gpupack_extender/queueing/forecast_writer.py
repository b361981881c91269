# SPDX-License-Identifier: Apache-2.0
"""Publication of the learned demand forecast, while this process decides.

This process's policies use it when the watch shows it (gpupack_scheduler.published_forecast). If
it cannot be written, decisions continue with the last known one.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from gpupack_crds.demand_forecast import DemandForecast
from gpupack_crds.kinds import GPUCOHORTS, status_body
from gpupack_extender.looking import look_forever
from gpupack_extender.queueing import cluster_cohort
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_placement import DemandLearner, Request
from gpupack_scheduler import published_forecast
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0


class ForecastWriter:
    """Task that writes the forecast.

    Args:
        api: the API server.
        stores: what the watch shows of GPUCohorts.
        learner: past requests of pods.
        can_serve: tells whether some node could serve a request if it were empty.
        decides: tells whether this process decides.
    """

    def __init__(
        self,
        api: Api,
        stores: QuotaStores,
        learner: DemandLearner,
        *,
        can_serve: Callable[[Request], bool],
        decides: Callable[[], bool],
    ) -> None:
        self._api, self._stores, self._learner = api, stores, learner
        self._can_serve, self._decides = can_serve, decides
        self._unwritten: DemandForecast | None = None

    async def run(self) -> None:
        """Check in an endless loop; a failed write is repeated in the next pass."""
        await look_forever(self.look, seconds=LOOK_SECONDS, decides=self._decides)

    async def look(self) -> None:
        """Write a forecast that is due."""
        if self._learner.due():
            found = await published_forecast.without_unservable(
                self._learner.take_forecast(), self._can_serve
            )
            self._unwritten = published_forecast.to_status(found)
        if self._unwritten is None:
            return
        try:
            await self._write(self._unwritten)
        except (errors.Conflict, errors.NotFound) as error:
            log.debug("the forecast is written later: %s", error)
        except errors.KubeError as error:
            log.warning("cannot write the forecast: %s", error)

    async def _write(self, forecast: DemandForecast) -> None:
        cohort = cluster_cohort.shown(self._stores)
        if cohort is None:
            await cluster_cohort.make(self._api)
            return
        status = msgspec.structs.replace(cohort.status, demand_forecast=forecast)
        if status != cohort.status:
            body = status_body("GPUCohort", cohort.metadata, status)
            await self._api.replace(GPUCOHORTS, cohort.metadata.name, body, subresource="status")
        self._unwritten = None
