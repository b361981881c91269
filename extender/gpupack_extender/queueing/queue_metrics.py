# SPDX-License-Identifier: Apache-2.0
"""Metrics of the queue.

Metrics by namespace cover only namespaces with a GPUQuota, which tenants do not write. If there are
more than MAX_NAMESPACES, those with the largest use or quota have their own series, and all others
are summed as OTHERS: so sums over namespaces are complete.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpupack_crds.gpuquota import QUOTA_NAME
from gpupack_crds.kinds import GpuQuota
from gpupack_devices.units import WHOLE_GPU
from gpupack_queue import PreemptionReason, Tenant
from gpupack_scheduler.queueing.observed_queue import ObservedQueue
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores

MAX_NAMESPACES: Final = 500

OTHERS: Final = "(others)"
"""Name that no namespace can have."""

_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

AMOUNTS: Final[tuple[Literal["nominal", "used", "borrowed", "lent"], ...]] = (
    "nominal",
    "used",
    "borrowed",
    "lent",
)


Named = Mapping[str, Sequence[GpuQuota]]
"""Quotas by the name of their series."""


class QueueMetrics:
    """Time that the queue's decisions take."""

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        self._cycles = prometheus.Histogram(
            "gpupack_queue_cycle_seconds",
            "Duration of a scheduling cycle.",
            buckets=_BUCKETS,
            registry=registry,
        )

    @contextlib.contextmanager
    def timed_cycle(self) -> Iterator[None]:
        """Measure one cycle."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._cycles.observe(time.perf_counter() - start)


class QueueCollector(Collector):
    """Collector of waiting and preempted jobs and pods, and of the use of quotas.

    Args:
        observed: the queue.
        quotas: the quotas as the watch shows them.
        decides: tells whether this process decides; a standby does not know the waiting jobs.
    """

    def __init__(
        self, observed: ObservedQueue, quotas: QuotaStores, *, decides: Callable[[], bool]
    ) -> None:
        self._observed, self._quotas, self._decides = observed, quotas, decides

    def collect(self) -> Iterator[Metric]:
        """Yield the current state."""
        yield self._waiting()
        yield from self._preemptions()
        quotas = self._by_name()
        yield self._starving(quotas)
        yield _amounts(quotas)
        yield _jobs(quotas)
        yield self._reservations(quotas)

    def _reservations(self, quotas: Named) -> Metric:
        family = GaugeMetricFamily(
            "gpupack_reservation_gpus",
            "GPUs of active time windows: reserved, used by jobs that name the reservation, held "
            "for such jobs, and missing.",
            labels=["namespace", "amount"],
        )
        reports = self._observed.window_reports().values() if self._decides() else ()
        active = [each for each in reports if each.is_active]
        for name, named in quotas.items() if active else ():
            tenants = {Tenant(each.metadata.namespace) for each in named}
            own = [each for each in active if each.window.tenant in tenants]
            for amount, milli in (
                ("reserved", sum(each.window.milli for each in own)),
                ("used", sum(each.used for each in own)),
                ("held", sum(each.held for each in own)),
                ("missing", sum(each.missing for each in own)),
            ):
                if own:
                    family.add_metric([name, amount], milli / WHOLE_GPU)
        return family

    def _waiting(self) -> Metric:
        family = GaugeMetricFamily(
            "gpupack_queue_waiting",
            "Pending attempts of GPUJobs (gang), pod groups (group) and standalone pods (pod).",
            labels=["kind"],
        )
        for kind, number in self._observed.kinds().items():
            family.add_metric([kind], number)
        return family

    def _preemptions(self) -> Iterator[Metric]:
        preemptions = self._observed.operations.preemptions
        stopped = CounterMetricFamily(
            "gpupack_queue_preempted",
            "Preempted jobs, workers and pods, by reason.",
            labels=["reason"],
        )
        for reason in PreemptionReason:
            stopped.add_metric([reason.value], preemptions.stopped[reason.value])
        yield stopped
        yield CounterMetricFamily(
            "gpupack_queue_preemptions_given_up",
            "Preemptions that were given up because victims did not end.",
            value=preemptions.given_up,
        )
        yield GaugeMetricFamily(
            "gpupack_queue_preemptions_open",
            "Preemptors whose victims have not ended.",
            value=len(preemptions.operations),
        )
        oldest = preemptions.operations.oldest()
        yield GaugeMetricFamily(
            "gpupack_queue_preemption_oldest_seconds",
            "Age of the oldest open preemption. 0: none.",
            value=0.0 if oldest is None else max(self._observed.now() - oldest, 0.0),
        )

    def _starving(self, quotas: Named) -> Metric:
        family = GaugeMetricFamily(
            "gpupack_queue_starving_seconds",
            "Longest waiting time of a job whose request is within the unused nominal quota of "
            "its namespace.",
            labels=["namespace"],
        )
        found = self._observed.starving() if self._decides() else {}
        for name, named in quotas.items():
            tenants = (Tenant(each.metadata.namespace) for each in named)
            waits = [found[tenant] for tenant in tenants if tenant in found]
            if waits:
                family.add_metric([name], max(waits))
        return family

    def _by_name(self) -> Named:
        """Return the quotas that count, by the names of their series."""
        items = self._quotas.quotas.items.items()
        quotas = sorted(
            (quota for (_, name), quota in items if name == QUOTA_NAME), key=_size, reverse=True
        )
        named = {each.metadata.namespace: [each] for each in quotas[:MAX_NAMESPACES]}
        others = quotas[MAX_NAMESPACES:]
        return dict(sorted(named.items())) | ({OTHERS: others} if others else {})


def _amounts(quotas: Named) -> Metric:
    family = GaugeMetricFamily(
        "gpupack_queue_quota_gpus",
        "GPUs of a namespace's quota: nominal, used, borrowed and lent.",
        labels=["namespace", "amount"],
    )
    for name, named in quotas.items():
        for amount in AMOUNTS:
            gpus = math.fsum(_gpus(getattr(quota.status, amount)) for quota in named)
            family.add_metric([name, amount], gpus)
    return family


def _jobs(quotas: Named) -> Metric:
    family = GaugeMetricFamily(
        "gpupack_queue_quota_jobs",
        "Running and pending jobs and pods of a namespace with a quota.",
        labels=["namespace", "state"],
    )
    for name, named in quotas.items():
        family.add_metric([name, "running"], sum(each.status.running for each in named))
        family.add_metric([name, "waiting"], sum(each.status.waiting for each in named))
    return family


def _size(quota: GpuQuota) -> tuple[float, float, str]:
    status = quota.status
    return _gpus(status.used), _gpus(status.nominal), quota.metadata.namespace


def _gpus(text: str) -> float:
    """Parse a status's number; it is empty before its first write."""
    return float(text) if text else 0.0
