# SPDX-License-Identifier: Apache-2.0
"""What the operator counts."""

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
    return lambda name, **labels: metrics.counted.get_sample_value(
        f"gpupack_operator_{name}", labels
    )


def test_an_attempt_that_ended_is_counted_once_by_outcome_and_reason(metrics, value):
    before, after = (
        status(attempts=[attempt(1)]),
        status(attempts=[attempt(1, "Infrastructure", "PodLost"), attempt(2)]),
    )
    metrics.wrote(before, after)
    metrics.wrote(after, after)
    counted = {"outcome": "Infrastructure", "reason": "PodLost"}
    assert value("attempts_total", **counted) == 1


def test_a_reason_that_is_not_ours_is_other():
    assert reason("PodLost") == "PodLost"
    assert reason("UnexpectedAdmissionError") == "Other"


def test_a_job_that_was_lost_and_runs_again_has_recovered_after_so_long(metrics, value):
    lost = [attempt(1, "Infrastructure", "PodLost"), attempt(2)]
    before = status("Admitted", attempts=lost, attempt=2)
    metrics.wrote(before, status("Running", attempts=lost, attempt=2))
    assert value("recovery_seconds_sum", outcome="Infrastructure") == 12
    assert value("recovery_seconds_count", outcome="Infrastructure") == 1


def test_a_first_attempt_and_one_after_the_job_s_own_failure_recover_nothing(metrics, value):
    metrics.wrote(
        status("Admitted", attempts=[attempt(1)], attempt=1),
        status("Running", attempts=[attempt(1)], attempt=1),
    )
    own = [attempt(1, "Failed", "WorkerFailed"), attempt(2)]
    metrics.wrote(
        status("Admitted", attempts=own, attempt=2), status("Running", attempts=own, attempt=2)
    )
    assert value("recovery_seconds_count", outcome="Infrastructure") == 0


class Known:
    def __init__(self, jobs):
        self.jobs = jobs

    def all_gpujobs(self):
        return [CachedGpuJob(job=job, template={}) for job in self.jobs]


class KeptOut:
    def phases(self):
        return {"Quarantined": 2}


@pytest.fixture
def shown(build):
    """What a leader shows of these statuses."""

    def show(*statuses):
        collector, registry = OperatorCollector(), CollectorRegistry()
        jobs = [msgspec.structs.replace(build.gpujob(), status=each) for each in statuses]
        collector.leads(WorkQueue(lambda *_: None), Known(jobs), KeptOut())
        registry.register(collector)
        return lambda name, **labels: registry.get_sample_value(f"gpupack_operator_{name}", labels)

    return show


def test_jobs_are_told_by_phase_and_those_that_wait_by_reason(shown):
    value = shown(
        status("Pending", reason="TooFewFreeGpus"),
        status("Pending", reason="QuotaExceeded"),
        status("Pending", reason="made up by somebody"),
        status("Running", reason="AllWorkersRunning"),
        status("Succeeded", reason="Completed"),
    )
    for why in ("TooFewFreeGpus", "QuotaExceeded", "Other"):
        assert value("gpujobs", phase="Pending", reason=why) == 1
    assert value("gpujobs", phase="Running", reason="") == 1
    assert value("gpujobs", phase="Succeeded", reason="") is None


def test_a_leader_says_so_and_tells_which_gpus_are_kept_out(shown):
    value = shown()
    assert value("leading") == 1
    assert value("gpus_kept_out", phase="Quarantined") == 2
    assert value("gpus_kept_out", phase="Slow") == 0


def test_a_standby_shows_that_it_does_not_lead():
    registry = CollectorRegistry()
    registry.register(OperatorCollector())
    assert registry.get_sample_value("gpupack_operator_leading") == 0
    assert registry.get_sample_value("gpupack_operator_work_queue_depth") == 0


def test_a_queue_tells_how_many_wait_and_for_how_long_the_first(monkeypatch):
    now = {"seconds": 100.0}
    monkeypatch.setattr("gpupack_operator.work_queue.time.monotonic", lambda: now["seconds"])
    queue = WorkQueue(lambda *_: None)
    assert (len(queue), queue.oldest_seconds()) == (0, 0.0)
    queue.add("a")
    now["seconds"] = 107.0
    queue.add("b")
    queue.add("a")
    assert (len(queue), queue.oldest_seconds()) == (2, 7.0)
