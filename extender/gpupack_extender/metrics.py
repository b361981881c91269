# SPDX-License-Identifier: Apache-2.0
"""Metrics of the extender. State is read from the ledger at each scrape, not stored twice."""

import collections
import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import numpy as np
import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpupack_extender.readiness import Readiness, Watch
from gpupack_placement import WHOLE_GPU, Cluster, Health
from gpupack_placement.arrays import ABSENT, takes_work
from gpupack_placement.free_blocks import fragmented_fraction
from gpupack_scheduler.ledger.claims import State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.operations.consolidations import Consolidations

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15)


OUTCOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "filter": ("placed", "refused", "error"),
    "prioritize": ("ranked",),
    "bind": ("bound", "refused", "unknown", "incomplete"),
    "plan": ("placed", "refused"),
}
"""Outcomes by verb. They are shown from the start, so that the first one is an increase."""


class Metrics:
    """Counters of calls by verb and outcome, and of their time."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        self._calls = prometheus.Counter(
            "gpupack_extender_calls",
            "Answered calls, by verb and outcome.",
            ["verb", "outcome"],
            registry=self.registry,
        )
        self._seconds = prometheus.Histogram(
            "gpupack_extender_call_seconds",
            "Time to answer a call, by verb.",
            ["verb"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        for verb, outcomes in OUTCOMES.items():
            self._seconds.labels(verb)
            for outcome in outcomes:
                self._calls.labels(verb, outcome)

    @contextlib.contextmanager
    def timed(self, verb: str) -> Iterator[None]:
        """Measure one call."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds.labels(verb).observe(time.perf_counter() - start)

    def count(self, verb: str, outcome: str) -> None:
        """Count one answer."""
        self._calls.labels(verb, outcome).inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return prometheus.generate_latest(self.registry)


class LedgerCollector(Collector):
    """Collector of claims by state, devices by state, and the age of the watches."""

    def __init__(self, ledger: Ledger, watches: Mapping[str, Watch]) -> None:
        self._ledger = ledger
        self._watches = watches

    def collect(self) -> Iterator[Metric]:
        """Yield the ledger's current state; what has expired since the last call holds nothing."""
        self._ledger.expire()
        yield self._claims()
        yield self._devices()
        yield from self._gpus()
        yield self._nodes()
        yield self._lingering()
        yield self._ages()
        yield CounterMetricFamily(
            "gpupack_extender_contradictions",
            "Times that the API showed a device claimed beyond its capacity.",
            value=self._ledger.claims.contradictions,
        )

    def _claims(self) -> Metric:
        table = self._ledger.claims
        states = [claim.state for claim in table.workers.values()]
        counts = collections.Counter(states + [claim.state for claim in table.pods.values()])
        family = GaugeMetricFamily("gpupack_extender_claims", "Claims by state.", labels=["state"])
        for state in State:
            family.add_metric([state.value], counts[state])
        return family

    def _devices(self) -> Metric:
        family = GaugeMetricFamily(
            "gpupack_extender_devices",
            "GPUs by state: free, shared with free capacity, fully held, unhealthy, maintenance.",
            labels=["state"],
        )
        for state, devices in _devices_by_state(self._ledger.cluster).items():
            family.add_metric([state], devices)
        return family

    def _gpus(self) -> Iterator[Metric]:
        cluster = self._ledger.cluster
        family = GaugeMetricFamily(
            "gpupack_extender_gpus",
            "GPUs by model: all (capacity), and allocated ones (given_out). Shares count in part.",
            labels=["model", "amount"],
        )
        for model, (capacity, given_out) in _gpus_by_model(cluster).items():
            family.add_metric([model, "capacity"], capacity)
            family.add_metric([model, "given_out"], given_out)
        yield family
        yield GaugeMetricFamily(
            "gpupack_extender_fragmentation_ratio",
            "Fraction of free GPUs outside fully free nodes.",
            value=fragmented_fraction(cluster.arrays),
        )

    def _nodes(self) -> Metric:
        family = GaugeMetricFamily(
            "gpupack_extender_node_gpus",
            "GPUs of a node, as its GPUNode lists them.",
            labels=["node"],
        )
        cluster = self._ledger.cluster
        counts = (cluster.arrays.health != ABSENT).sum(axis=1)
        for node in cluster.nodes():
            if node.devices and (row := cluster.row(node.name)) is not None:
                family.add_metric([node.name], int(counts[row]))
        return family

    def _lingering(self) -> Metric:
        holders = self._ledger.claims.lingering.values()
        return GaugeMetricFamily(
            "gpupack_extender_lingering_pods",
            "Deleted pods whose processes still hold GPUs.",
            value=sum(map(len, holders)),
        )

    def _ages(self) -> Metric:
        family = GaugeMetricFamily(
            "gpupack_extender_watch_age_seconds",
            "Seconds since the last data of the watch, by kind.",
            labels=["kind"],
        )
        for kind, watch in self._watches.items():
            family.add_metric([kind], watch.age_seconds())
        return family


class ConsolidationCollector(Collector):
    """Collector of the costs and gains of this process's consolidations."""

    def __init__(self, consolidations: Consolidations) -> None:
        self._of = consolidations

    def collect(self) -> Iterator[Metric]:
        """Yield the consolidations whose moves have begun."""
        for name, text, value in (
            ("consolidations", "Consolidations that have started to move jobs.", self._of.begun),
            ("consolidation_moves", "Jobs moved by consolidation.", self._of.moved),
            (
                "consolidation_lost_gpu_seconds",
                "Estimated upper bound of the cost of moves, in GPU-seconds.",
                self._of.lost,
            ),
            (
                "consolidation_gained_gpu_seconds",
                "Estimated GPU-seconds by which preemptors start earlier because of consolidation.",
                self._of.gained,
            ),
        ):
            yield CounterMetricFamily(f"gpupack_extender_{name}", text, value=value)


class ReadinessCollector(Collector):
    """Collector that shows whether this extender leads and decides."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    def collect(self) -> Iterator[Metric]:
        """Yield both as 0 or 1."""
        yield GaugeMetricFamily(
            "gpupack_extender_leading",
            "1: the kube-scheduler next to this extender is the leader.",
            value=self._readiness.leadership.held,
        )
        yield GaugeMetricFamily(
            "gpupack_extender_deciding",
            "1: this replica leads and can place pods, because all watches are fresh and complete.",
            value=self._readiness.decides(),
        )


class Idle(Protocol):
    """Counter of pods that use none of their GPUs."""

    pods: int
    gpus: int


class IdleCollector(Collector):
    """Collector of pods that use none of their GPUs for longer than their cohort allows."""

    def __init__(self, idle: Idle) -> None:
        self._idle = idle

    def collect(self) -> Iterator[Metric]:
        """Yield the numbers of the last check."""
        for name, what, value in (
            ("pods", "Standalone pods", self._idle.pods),
            ("gpus", "GPUs of pods", self._idle.gpus),
        ):
            text = f"{what} that are idle for longer than their cohort allows."
            yield GaugeMetricFamily(f"gpupack_extender_idle_{name}", text, value=value)


def _gpus_by_model(cluster: Cluster) -> dict[str, tuple[int, float]]:
    """Count GPUs with arrays; reported use can exceed the GPU, and is limited to it."""
    arrays = cluster.arrays
    there = arrays.health != ABSENT
    found: dict[str, tuple[int, float]] = {}
    for number in np.unique(arrays.model[there]).tolist():
        of_model = there & (arrays.model == number)
        used = np.minimum(arrays.used_milli[of_model], WHOLE_GPU).sum()
        found[cluster.model_names.values[number]] = (
            int(of_model.sum()),
            float(used) / WHOLE_GPU,
        )
    return found


def _devices_by_state(cluster: Cluster) -> dict[str, int]:
    """Count with arrays.

    40,000 devices one by one would block the loop for 70 ms at each scrape.
    """
    health, left = cluster.arrays.health, cluster.arrays.free_milli
    known = int((health != ABSENT).sum())
    working = int(takes_work(health).sum())
    maintained = int((health == Health.MAINTENANCE).sum())
    free, usable = int((left == WHOLE_GPU).sum()), int((left > 0).sum())
    return {
        "free": free,
        "shared": usable - free,
        "held": working - usable,
        "unhealthy": known - working - maintained,
        "maintenance": maintained,
    }
