# SPDX-License-Identifier: Apache-2.0
"""Statuses of GPUReservations, written while this process decides."""

import logging
from collections.abc import Callable
from typing import Final

from gpupack_crds.gpureservation import GpuReservationStatus
from gpupack_crds.kinds import GPURESERVATIONS, GpuReservation, status_body
from gpupack_extender.looking import look_forever
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api
from gpupack_scheduler.queueing.observed_queue import ObservedQueue
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.queueing.windows.reserved_windows import id_of
from gpupack_scheduler.queueing.windows.window_status import reservation_status

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
MAX_WRITES: Final = 50
"""Largest number of writes in one pass; the others follow in the next passes."""


class WindowReporter:
    """Task that writes the statuses.

    Args:
        api: the API server with the statuses.
        stores: what the watch shows of them.
        observed: the queue to report.
        decides: tells whether this process decides; otherwise another process reports.
    """

    def __init__(
        self, api: Api, stores: QuotaStores, observed: ObservedQueue, *, decides: Callable[[], bool]
    ) -> None:
        self._api, self._stores, self._observed = api, stores, observed
        self._decides = decides
        self._written = 0

    async def run(self) -> None:
        """Check in an endless loop; a failed write is repeated in the next pass."""
        await look_forever(self.report, seconds=LOOK_SECONDS, decides=self._decides)

    async def report(self) -> None:
        """Write the statuses that have changed."""
        stale = self._stale()
        start = self._written % max(len(stale), 1)
        for item, status in (stale[start:] + stale[:start])[:MAX_WRITES]:
            self._written += 1
            meta = item.metadata
            body = status_body("GPUReservation", meta, status)
            try:
                await self._api.replace(
                    GPURESERVATIONS,
                    meta.name,
                    body,
                    namespace=meta.namespace,
                    subresource="status",
                )
            except (errors.Conflict, errors.NotFound) as error:
                log.debug("the status of reservation %s/%s is written later: %s", *item.key, error)
            except errors.Refused as error:
                log.warning("the status of reservation %s/%s is refused: %s", *item.key, error)
            except errors.KubeError as error:
                log.warning("cannot write the status of reservation %s/%s: %s", *item.key, error)
                return

    def _stale(self) -> list[tuple[GpuReservation, GpuReservationStatus]]:
        items = self._stores.reservations.items.values()
        if not items:
            return []
        problems, now = self._observed.windows.problems, self._observed.now()
        current = self._observed.window_reports()
        wanted = (
            (item, reservation_status(item, current.get(id_of(item)), problem, now))
            for item in items
            for problem in (problems.get(id_of(item)),)
        )
        return [(item, status) for item, status in wanted if status != item.status]
