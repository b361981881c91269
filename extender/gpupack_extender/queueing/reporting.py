# SPDX-License-Identifier: Apache-2.0
"""Statuses of GPUQuotas and GPUCohorts with the current use, written while this process decides."""

import datetime as dt
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from gpupack_crds.kinds import GpuCohort, GpuQuota
from gpupack_crds.quota import QuotaStatus
from gpupack_extender.looking import look_forever
from gpupack_extender.queueing import cluster_cohort
from gpupack_extender.queueing.status_writer import StatusWriter
from gpupack_kubeclient.client import Api
from gpupack_scheduler.queueing.observed_queue import ObservedQueue
from gpupack_scheduler.queueing.quotas.averages import AverageReport
from gpupack_scheduler.queueing.quotas.quota_capacity import (
    CapacityReport,
    Shortfall,
    with_capacity_condition,
)
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.queueing.quotas.usage import UsageReport

S = TypeVar("S", bound=QuotaStatus)

LOOK_SECONDS: Final = 5.0


class QuotaReporter:
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
        self._decides, self._writer = decides, StatusWriter(api)

    async def run(self) -> None:
        """Check in an endless loop; a failed write is repeated in the next pass."""
        await look_forever(self.report, seconds=LOOK_SECONDS, decides=self._decides)

    async def report(self) -> None:
        """Write the statuses that have changed."""
        await self._make_room_for_averages()
        await self._writer.write(self._stale())

    def _stale(self) -> list[tuple[GpuQuota | GpuCohort, QuotaStatus]]:
        quotas, cohorts = self._stores.quotas.items, self._stores.cohorts.items
        if not quotas and not cohorts:
            return []
        queue, problems = self._observed.queue, self._observed.problems
        report = UsageReport(queue)
        capacity = CapacityReport(queue, self._observed.cluster())
        averages = AverageReport(queue, {name for _, name in cohorts}, self._observed.now())
        found: list[tuple[GpuQuota | GpuCohort, QuotaStatus]] = []
        for (namespace, _), quota in quotas.items():
            generation, problem = quota.metadata.generation, problems.get(quota.key, "")
            used = report.of_tenant(namespace, generation=generation, problem=problem)
            used = self._with_conditions(used, quota, capacity.of_tenant(namespace))
            found.append((quota, averages.of_tenant(namespace, used, quota.status)))
        for (_, name), cohort in cohorts.items():
            generation, problem = cohort.metadata.generation, problems.get(cohort.key, "")
            below = report.of_cohort(name, generation=generation, problem=problem)
            if below is not None:
                below = self._with_conditions(below, cohort, capacity.of_cohort(name))
                below = msgspec.structs.replace(
                    below, demand_forecast=cohort.status.demand_forecast
                )
                found.append((cohort, averages.of_cohort(name, below, cohort.status)))
        return [(item, status) for item, status in found if status != item.status]

    def _with_conditions(
        self, status: S, item: GpuQuota | GpuCohort, shortfall: Shortfall | None
    ) -> S:
        conditions = with_capacity_condition(
            item.status.conditions,
            shortfall,
            generation=item.metadata.generation,
            now=dt.datetime.fromtimestamp(self._observed.now(), dt.UTC),
        )
        return msgspec.structs.replace(status, conditions=conditions)

    async def _make_room_for_averages(self) -> None:
        """Create the GPUCohort that keeps the averages of namespaces outside all cohorts."""
        has_half_life = self._observed.queue.rules.half_life_seconds > 0
        if has_half_life and cluster_cohort.shown(self._stores) is None:
            await cluster_cohort.make(self._api)
