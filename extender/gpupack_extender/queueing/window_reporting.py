# SPDX-License-Identifier: Apache-2.0
"""Statuses of GPUReservations, written while this process decides."""

from collections.abc import Callable
from typing import Final

from gpupack_crds.gpureservation import GpuReservationStatus
from gpupack_crds.kinds import GpuReservation
from gpupack_extender.looking import look_forever
from gpupack_extender.queueing.status_writer import StatusWriter
from gpupack_kubeclient.client import Api
from gpupack_scheduler.queueing.observed_queue import ObservedQueue
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.queueing.windows.reserved_windows import id_of
from gpupack_scheduler.queueing.windows.window_status import reservation_status

LOOK_SECONDS: Final = 5.0


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
        self._stores, self._observed = stores, observed
        self._decides, self._writer = decides, StatusWriter(api)

    async def run(self) -> None:
        """Check in an endless loop; a failed write is repeated in the next pass."""
        await look_forever(self.report, seconds=LOOK_SECONDS, decides=self._decides)

    async def report(self) -> None:
        """Write the statuses that have changed."""
        await self._writer.write(self._stale())

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
