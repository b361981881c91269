# SPDX-License-Identifier: Apache-2.0
"""Logs to save when an attempt ends: those of workers whose pods do not stay.

A failed worker keeps its pod. The others are deleted by the operator or by their Job's controller,
and the kubelet removes a log with its pod.
"""

from typing import Final

from gpupack_operator.decision.model import LogSource, SaveLogs
from gpupack_operator.decision.view import AttemptView, Verdict
from gpupack_operator.decision.workers import Worker, by_index, has_terminated_container

MAX_WORKERS: Final = 8
"""Largest number of logs to save; of a larger job, the first workers count."""


def logs_to_save(seen: AttemptView, verdict: Verdict) -> SaveLogs | None:
    """Return what to save of an attempt with this verdict; None: nothing."""
    if not seen.jobs or verdict.outcome == "Succeeded":
        return None
    is_kept = verdict.outcome == "Failed"
    workers = by_index(seen.workers).values()
    going = [each for each in workers if each.started and not (is_kept and _stays(each, seen))]
    if not going:
        return None
    # A lost node sends no log: nothing waits for it.
    urgent = verdict.outcome == "Infrastructure"
    return SaveLogs(seen.number, tuple(map(_source, going[:MAX_WORKERS])), waits=not urgent)


def _stays(worker: Worker, seen: AttemptView) -> bool:
    """Tell whether the worker's pod stays after the attempt has failed."""
    return has_terminated_container(worker.pod) if seen.has_job_per_pod else worker.has_ended


def _source(worker: Worker) -> LogSource:
    return LogSource(worker.index, worker.pod.metadata.name, worker.main_container)
