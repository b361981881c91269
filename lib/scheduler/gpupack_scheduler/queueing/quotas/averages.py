# SPDX-License-Identifier: Apache-2.0
"""Average usage of tenants, kept across restarts in the statuses of GPUCohorts.

    place     a namespace is in the GPUCohort that its quota names, if it exists; otherwise in
              the one called `cluster`, which is the cluster itself
    write     once per period, whatever else changes in a status
    read      once, when a process has seen all running jobs: they are assumed to have run since
              the time of the averages

A period is a hundredth of the half-life, within bounds. In one period averages change by less than
one percent, which is all that a restart can lose. Only the scheduler writes statuses. Their
contents are nevertheless accepted only as far as they can be true.
"""

import dataclasses
import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from gpupack_crds.gpucohort import CLUSTER_NAME
from gpupack_crds.quota import (
    ANY_MODEL,
    MAX_AVERAGES,
    CohortStatus,
    QuotaStatus,
    TenantAverage,
)
from gpupack_devices.units import WHOLE_GPU
from gpupack_kubeclient.heartbeat import timestamp
from gpupack_queue import ANY, ModelKey, Queue, Tenant
from gpupack_queue.quotas.tree import TOP, NodeId
from gpupack_scheduler.queueing.quotas.usage import gpus

SHORTEST_PERIOD_SECONDS: Final = 60.0
LONGEST_PERIOD_SECONDS: Final = 600.0
PERIODS: Final = 100
"""Number of periods in a half-life."""

S = TypeVar("S", bound=QuotaStatus)
ByModel = Mapping[ModelKey, float]
"""Milli-GPU by model."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredAverages:
    """Averages as a status has them; `at`: seconds since the epoch."""

    at: float
    averages: dict[Tenant, dict[ModelKey, float]]


def read(statuses: Iterable[CohortStatus]) -> list[StoredAverages]:
    """Return all averages, the latest last: a namespace that changed its cohort may be in two."""
    found = [
        StoredAverages(at, _by_tenant(each))
        for each in statuses
        if (at := _moment(each)) is not None
    ]
    return sorted(found, key=lambda kept: kept.at)


class AverageReport:
    """The averages at one time, computed once for all quotas and cohorts.

    Args:
        queue: the queue with the averages.
        cohorts: names of the existing GPUCohorts.
        now: seconds since the epoch.
    """

    def __init__(self, queue: Queue, cohorts: Collection[str], now: float) -> None:
        self._now, half_life = now, queue.rules.half_life_seconds
        self._is_kept = half_life > 0
        self._period = min(
            max(half_life / PERIODS, SHORTEST_PERIOD_SECONDS), LONGEST_PERIOD_SECONDS
        )
        self._sums: defaultdict[NodeId, float] = defaultdict(float)
        self._members: defaultdict[str, dict[Tenant, ByModel]] = defaultdict(dict)
        tree = queue.state.quota.tree
        for tenant, averages in queue.averages(now).items():
            leaf = tree.tenant(tenant)
            for each in (TOP, *leaf.path):
                self._sums[each] += sum(averages.values())
            cohort = leaf.parent.name if leaf.parent else ""
            self._members[cohort if cohort in cohorts else CLUSTER_NAME][tenant] = averages

    def of_tenant(self, tenant: str, status: QuotaStatus, shown: QuotaStatus) -> QuotaStatus:
        """Return a quota's status with the average; `shown`: the status that was written last."""
        return self._averaged(NodeId(f"tenant/{tenant}"), status, shown)

    def of_cohort(self, name: str, status: CohortStatus, shown: CohortStatus) -> CohortStatus:
        """Return a cohort's status with its average and those of its namespaces."""
        node = TOP if name == CLUSTER_NAME else NodeId(f"cohort/{name}")
        averaged = self._averaged(node, status, shown)
        if not self._is_kept:
            return averaged
        if not self._is_due(shown):
            return msgspec.structs.replace(averaged, averages=shown.averages)
        averages = _written(self._members.get(name, {}))
        at = averaged.averaged_at if not averages and not shown.averages else self._written_now()
        return msgspec.structs.replace(averaged, averages=averages, averaged_at=at)

    def _averaged(self, node: NodeId, status: S, shown: S) -> S:
        if not self._is_kept:
            return status
        average, at = gpus(self._sums[node]), self._written_now()
        if not self._is_due(shown) or average == shown.average:
            average, at = shown.average, shown.averaged_at or ""
        return msgspec.structs.replace(status, average=average, averaged_at=at or None)

    def _is_due(self, shown: QuotaStatus) -> bool:
        at = _moment(shown)
        return at is None or not 0 <= self._now - at < self._period

    def _written_now(self) -> str:
        return timestamp(dt.datetime.fromtimestamp(self._now, dt.UTC))


def _moment(status: QuotaStatus) -> float | None:
    """Return the time of a status's averages; None if it has none or no valid one."""
    try:
        at = dt.datetime.fromisoformat(status.averaged_at or "")
    except ValueError:
        return None
    return at.timestamp() if at.tzinfo else None


def _by_tenant(status: CohortStatus) -> dict[Tenant, dict[ModelKey, float]]:
    found: defaultdict[Tenant, dict[ModelKey, float]] = defaultdict(dict)
    for each in status.averages:
        model = ANY if each.model == ANY_MODEL else ModelKey(each.model)
        found[Tenant(each.namespace)][model] = _milli(each.gpus)
    return dict(found)


def _milli(written: str) -> float:
    try:
        return float(written) * WHOLE_GPU
    except ValueError:
        return 0.0


def _written(members: Mapping[Tenant, ByModel]) -> tuple[TenantAverage, ...]:
    """Return the largest averages, in order of names."""
    amounts = [
        (round(milli), tenant, key)
        for tenant, averages in members.items()
        for key, milli in averages.items()
        if round(milli)
    ]
    amounts.sort(key=lambda each: (-each[0], each[1:]))
    return tuple(
        TenantAverage(namespace=tenant, model=ANY_MODEL if key == ANY else key, gpus=gpus(milli))
        for milli, tenant, key in sorted(amounts[:MAX_AVERAGES], key=lambda each: each[1:])
    )
