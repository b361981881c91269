# SPDX-License-Identifier: Apache-2.0
"""Metrics of the operator.

Events are counted as they are written; states are read at each scrape. Every counter has all of its
series from the start, at 0: Prometheus sees no increase in a series that begins higher.
"""

import collections
import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol, get_args

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpupack_crds.gpujob_status import Attempt, GpuJobStatus, Outcome
from gpupack_crds.gpunode import Phase as QuarantinePhase
from gpupack_operator.cache import CachedGpuJob
from gpupack_operator.decision import times
from gpupack_operator.decision.reasons import JobReason
from gpupack_placement import Reason
from gpupack_queue import WaitReason

_PASS_BUCKETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15)
_RECOVERY_BUCKETS: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)

OTHER: Final = "Other"
"""Reason that is not the operator's, such as a kubelet's: there may be any number of those."""

RECOVERABLE_OUTCOMES: Final[frozenset[Outcome]] = frozenset(
    {"Infrastructure", "Preempted", "Moved"}
)
"""Outcomes after which the operator restarts the job by itself."""

REASONS: Final = frozenset(map(str, JobReason))

WAIT_REASONS: Final = frozenset(map(str, (*JobReason, *Reason, *WaitReason)))
"""Reasons for waiting: the operator's, and those with which plans are refused."""

BURN_INS: Final = ("passed", "failed")


class Metrics:
    """Counters of passes, attempts, recoveries and burn-ins.

    Attributes:
        registry: the registry of the metrics.
    """

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        self._passes = prometheus.Counter(
            "gpupack_operator_reconciles",
            "Reconciliations of GPUJobs, by outcome: done, api_error or internal_error.",
            ["outcome"],
            registry=self.registry,
        )
        self._seconds = prometheus.Histogram(
            "gpupack_operator_reconcile_seconds",
            "Duration of one reconciliation of a GPUJob.",
            buckets=_PASS_BUCKETS,
            registry=self.registry,
        )
        self._attempts = prometheus.Counter(
            "gpupack_operator_attempts",
            "Ended attempts of GPUJobs, by outcome and the operator's reason. Other: a reason of "
            "Kubernetes.",
            ["outcome", "reason"],
            registry=self.registry,
        )
        self._recoveries = prometheus.Histogram(
            "gpupack_operator_recovery_seconds",
            "Time from the end of a lost, preempted or moved attempt until all workers of the "
            "next one run, by outcome of the ended attempt.",
            ["outcome"],
            buckets=_RECOVERY_BUCKETS,
            registry=self.registry,
        )
        self._burn_ins = prometheus.Counter(
            "gpupack_operator_burn_ins",
            "Ended burn-ins of GPUs, by result.",
            ["result"],
            registry=self.registry,
        )
        self._logs_left_out = prometheus.Counter(
            "gpupack_operator_logs_left_out",
            "Logs of stopped workers that were not saved, because too many were being saved.",
            registry=self.registry,
        )
        for outcome in ("done", "api_error", "internal_error"):
            self._passes.labels(outcome)
        for outcome, why in itertools.product(get_args(Outcome), (*sorted(REASONS), OTHER)):
            self._attempts.labels(outcome, why)
        for outcome in sorted(RECOVERABLE_OUTCOMES):
            self._recoveries.labels(outcome)
        for result in BURN_INS:
            self._burn_ins.labels(result)

    @contextlib.contextmanager
    def timed_pass(self) -> Iterator[None]:
        """Measure one pass."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds.observe(time.perf_counter() - start)

    def count_pass(self, outcome: str) -> None:
        """Count one pass."""
        self._passes.labels(outcome).inc()

    def count_attempts(self, before: GpuJobStatus, after: GpuJobStatus) -> None:
        """Count the attempts that ended with a written status, and whether the job recovered."""
        known = {each.number for each in before.attempts if each.outcome}
        for attempt in after.attempts:
            if attempt.outcome and attempt.number not in known:
                self._attempts.labels(attempt.outcome, reason(attempt.reason)).inc()
        if after.phase == "Running" != before.phase and (lost := _lost(after)):
            self._recoveries.labels(lost.outcome).observe(_seconds_since(lost, after))

    def count_unsaved_logs(self, workers: int) -> None:
        """Count the workers whose logs are not saved."""
        self._logs_left_out.inc(workers)

    def count_burn_in(self, *, passed: bool) -> None:
        """Count the test of a GPU."""
        self._burn_ins.labels(BURN_INS[0] if passed else BURN_INS[1]).inc()


def reason(text: str) -> str:
    """Return one of the operator's reasons, or OTHER: so the number of series is limited."""
    return text if text in REASONS else OTHER


def _why(text: str) -> str:
    return text if text in WAIT_REASONS else OTHER if text else ""


def _lost(status: GpuJobStatus) -> Attempt | None:
    """Return the attempt before the running one, if it was lost."""
    ended = [each for each in status.attempts if each.number == status.attempt - 1]
    return ended[0] if ended and ended[0].outcome in RECOVERABLE_OUTCOMES else None


def _seconds_since(lost: Attempt, status: GpuJobStatus) -> float:
    running = next(
        (each.last_transition_time for each in status.conditions if each.type == "Running"), None
    )
    if running is None or lost.finished_at is None:
        return 0.0
    return max((times.read(running) - times.read(lost.finished_at)).total_seconds(), 0.0)


class QueueDepth(Protocol):
    """Queue whose keys wait for a worker."""

    def __len__(self) -> int:
        """Return the number of waiting keys."""

    def oldest_seconds(self) -> float:
        """Return how long the first of them has waited."""


class ObservedGpuJobs(Protocol):
    """Observed GPUJobs."""

    def all_gpujobs(self) -> Iterable[CachedGpuJob]:
        """Return the newest state of each GPUJob."""


class QuarantineCounts(Protocol):
    """Source of the GPUs that get no new work."""

    def phases(self) -> Mapping[str, int]:
        """Return the number of GPUs in quarantine, by phase."""


class OperatorCollector(Collector):
    """Collector of the current state; all values of a standby are 0."""

    def __init__(self) -> None:
        self._queue: QueueDepth | None = None
        self._gpujobs: ObservedGpuJobs | None = None
        self._quarantines: QuarantineCounts | None = None

    def set_sources(
        self, queue: QueueDepth, gpujobs: ObservedGpuJobs, quarantines: QuarantineCounts
    ) -> None:
        """Collect from these sources, because this process leads now."""
        self._queue, self._gpujobs, self._quarantines = queue, gpujobs, quarantines

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        queue = self._queue
        yield GaugeMetricFamily(
            "gpupack_operator_leading", "1: this operator is the leader.", value=queue is not None
        )
        yield GaugeMetricFamily(
            "gpupack_operator_work_queue_depth",
            "GPUJobs in the operator's work queue.",
            value=0 if queue is None else len(queue),
        )
        yield GaugeMetricFamily(
            "gpupack_operator_work_queue_oldest_seconds",
            "Waiting time of the oldest GPUJob in the work queue.",
            value=0.0 if queue is None else queue.oldest_seconds(),
        )
        yield self._jobs()
        yield self._quarantine()

    def _jobs(self) -> Metric:
        family = GaugeMetricFamily(
            "gpupack_operator_gpujobs",
            "GPUJobs that have not ended, by phase; pending ones also by reason. Other: a reason "
            "of Kubernetes.",
            labels=["phase", "reason"],
        )
        counts: collections.Counter[tuple[str, str]] = collections.Counter()
        for phase in ("Pending", "Admitted", "Running", "Suspended"):
            counts[phase, ""] = 0
        for each in self._gpujobs.all_gpujobs() if self._gpujobs else ():
            status = each.job.status
            if not status.finished:
                phase = status.phase or "Pending"
                counts[phase, _why(status.reason) if phase == "Pending" else ""] += 1
        for labels, number in sorted(counts.items()):
            family.add_metric(labels, number)
        return family

    def _quarantine(self) -> Metric:
        family = GaugeMetricFamily(
            "gpupack_operator_gpus_kept_out",
            "GPUs in quarantine, by phase.",
            labels=["phase"],
        )
        phases = self._quarantines.phases() if self._quarantines else {}
        for phase in get_args(QuarantinePhase):
            family.add_metric([phase], phases.get(phase, 0))
        return family
