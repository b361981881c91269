# SPDX-License-Identifier: Apache-2.0
"""Metrics of the operator."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_operator.cache import CachedGpuJob
from gpupack_operator.metrics import Metrics, OperatorCollector, reason
from gpupack_operator.work_queue import WorkQueue

START, END, AGAIN = "2026-11-24T10:00:00Z", "2026-11-24T10:05:00Z", "2026-11-24T10:05:12Z"


def status(phase="Running", *, attempts=(), running_since=AGAIN, **more):
    condition = {
        "type": "Running",
        "status": "True",
        "reason": "AllWorkersRunning",
        "message": "",
        "lastTransitionTime": running_since,
    }
    body = {"phase": phase, "attempts": list(attempts), "conditions": [condition], **more}
    return msgspec.convert(body, GpuJobStatus)


def attempt(number, outcome=None, why=""):
    ended = {"finishedAt": END, "outcome": outcome, "reason": why} if outcome else {}
    return {"number": number, "startedAt": START, **ended}


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def value(metrics):
    return lambda name, **labels: metrics.registry.get_sample_value(
        f"gpupack_operator_{name}", labels
    )


def test_an_attempt_that_ended_is_counted_once_by_outcome_and_reason(metrics, value):
    before, after = (
        status(attempts=[attempt(1)]),
        status(attempts=[attempt(1, "Infrastructure", "PodLost"), attempt(2)]),
    )
    metrics.count_attempts(before, after)
    metrics.count_attempts(after, after)
    counted = {"outcome": "Infrastructure", "reason": "PodLost"}
    assert value("attempts_total", **counted) == 1


def test_reasons_of_other_components_are_counted_as_other():
    assert reason("PodLost") == "PodLost"
    assert reason("UnexpectedAdmissionError") == "Other"


def test_the_recovery_time_of_a_lost_job_is_measured(metrics, value):
    lost = [attempt(1, "Infrastructure", "PodLost"), attempt(2)]
    before = status("Admitted", attempts=lost, attempt=2)
    metrics.count_attempts(before, status("Running", attempts=lost, attempt=2))
    assert value("recovery_seconds_sum", outcome="Infrastructure") == 12
    assert value("recovery_seconds_count", outcome="Infrastructure") == 1


def test_first_attempts_and_restarts_after_failures_are_no_recoveries(metrics, value):
    metrics.count_attempts(
        status("Admitted", attempts=[attempt(1)], attempt=1),
        status("Running", attempts=[attempt(1)], attempt=1),
    )
    own = [attempt(1, "Failed", "WorkerFailed"), attempt(2)]
    metrics.count_attempts(
        status("Admitted", attempts=own, attempt=2), status("Running", attempts=own, attempt=2)
    )
    assert value("recovery_seconds_count", outcome="Infrastructure") == 0


class ObservedGpuJobs:
    def __init__(self, jobs):
        self.jobs = jobs

    def all_gpujobs(self):
        return [CachedGpuJob(job=job, template={}) for job in self.jobs]


class QuarantineCounts:
    def phases(self):
        return {"Quarantined": 2}


@pytest.fixture
def shown(build):
    """What a leader shows of these statuses."""

    def show(*statuses):
        collector, registry = OperatorCollector(), CollectorRegistry()
        jobs = [msgspec.structs.replace(build.gpujob(), status=each) for each in statuses]
        collector.set_sources(WorkQueue(lambda *_: None), ObservedGpuJobs(jobs), QuarantineCounts())
        registry.register(collector)
        return lambda name, **labels: registry.get_sample_value(f"gpupack_operator_{name}", labels)

    return show


def test_jobs_are_counted_by_phase_and_pending_ones_by_reason(shown):
    value = shown(
        status("Pending", reason="TooFewFreeGpus"),
        status("Pending", reason="QuotaExceeded"),
        status("Pending", reason="made up by a user"),
        status("Running", reason="AllWorkersRunning"),
        status("Succeeded", reason="Completed"),
    )
    for why in ("TooFewFreeGpus", "QuotaExceeded", "Other"):
        assert value("gpujobs", phase="Pending", reason=why) == 1
    assert value("gpujobs", phase="Running", reason="") == 1
    assert value("gpujobs", phase="Succeeded", reason="") is None


def test_a_leader_reports_that_it_leads_and_the_quarantined_gpus(shown):
    value = shown()
    assert value("leading") == 1
    assert value("gpus_kept_out", phase="Quarantined") == 2
    assert value("gpus_kept_out", phase="Slow") == 0


def test_a_standby_reports_that_it_does_not_lead():
    registry = CollectorRegistry()
    registry.register(OperatorCollector())
    assert registry.get_sample_value("gpupack_operator_leading") == 0
    assert registry.get_sample_value("gpupack_operator_work_queue_depth") == 0


def test_a_queue_reports_its_length_and_the_age_of_its_first_key(monkeypatch):
    now = {"seconds": 100.0}
    monkeypatch.setattr("gpupack_operator.work_queue.time.monotonic", lambda: now["seconds"])
    queue = WorkQueue(lambda *_: None)
    assert (len(queue), queue.oldest_seconds()) == (0, 0.0)
    queue.add("a")
    now["seconds"] = 107.0
    queue.add("b")
    queue.add("a")
    assert (len(queue), queue.oldest_seconds()) == (2, 7.0)
