# SPDX-License-Identifier: Apache-2.0
"""First cause of an attempt's failure.

One failed worker makes the others fail: peers lose their connection and exit, and the Job
controller deletes the rest. So the operator computes from every pod what happened to it and when,
and the earliest event is the cause. It is the application's failure only if a container ended with
an error by itself (`ends`): not deleted or disrupted before, not rejected or lost by its kubelet. A
worker that ended with exit code 0 because its pod was requested to end has not completed; it, too,
is a cause. Times have whole seconds; of two in the same second the application's failure comes
first, because the Job controller's deletions follow it at once.
"""

import dataclasses
import datetime as dt
import re

from gpupack_crds.errors import ResultUnreadable
from gpupack_crds.results import looks_like_result, read_result
from gpupack_operator.decision import container_ends
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.times import after
from gpupack_operator.decision.view import AttemptView, Finding, Verdict
from gpupack_operator.decision.workers import FailedContainer, Worker

SETTLE_SECONDS = 2.0
"""How long news about other pods may take: a deletion often follows from a failure."""

SHOWN_CHARACTERS = 600

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""Escape sequences of terminals: ECMA-48 control sequences, operating system commands, others."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, and those that change the direction of writing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """What happened to one worker."""

    at: dt.datetime
    own_failure: bool
    verdict: Verdict


def first_cause(view: AttemptView) -> Finding | None:
    """Return the earliest cause that the failure policy does not ignore."""
    found = [cause for worker in view.workers if (cause := cause_of(worker, view))]
    causes = [cause for cause in found if not is_ignored(cause, view)]
    if not causes:
        return None
    first = min(causes, key=lambda cause: (cause.at, not cause.own_failure))
    settled = first.at if first.own_failure else after(first.at, SETTLE_SECONDS)
    return Finding(due=settled, verdict=first.verdict)


def cause_of(worker: Worker, view: AttemptView) -> Cause | None:
    """Return what happened to a worker; None: nothing went wrong."""
    if worker.succeeded and not worker.pod_failed:
        return None
    if worker.exit and isinstance(
        container_ends.classify_end(worker.pod, worker.exit.state), container_ends.EndedByItself
    ):
        return _own_failure(worker, worker.exit, view.started_at)
    return _infrastructure(worker, view.started_at)


def is_ignored(cause: Cause, view: AttemptView) -> bool:
    """Tell whether the failure policy counts a worker that failed by itself as succeeded."""
    return cause.own_failure and view.action_for(cause.verdict.exit_code) == "Ignore"


def _own_failure(worker: Worker, exit_: FailedContainer, otherwise: dt.datetime) -> Cause:
    is_worker = exit_.container == worker.main_container
    killed = exit_.state.reason == "OOMKilled"
    verdict = Verdict(
        outcome="Failed",
        reason=JobReason.OUT_OF_MEMORY if killed else JobReason.WORKER_FAILED,
        message=f"{_name_worker(worker)}: {_describe_exit(exit_)}",
        exit_code=exit_.state.exit_code if is_worker else None,
        worker=worker.index,
    )
    return Cause(at=exit_.state.finished_at or otherwise, own_failure=True, verdict=verdict)


def _infrastructure(worker: Worker, otherwise: dt.datetime) -> Cause | None:
    """Return a failure of the infrastructure.

    An unknown time must not be `now`, or it never settles.
    """
    state = worker.exit.state if worker.exit else None
    at = state.finished_at if state else worker.bound_at
    if by := container_ends.interruption(worker.pod):
        at, reason, message = by.at or at, by.reason, by.message or f"its pod ended: {by.reason}"
    elif state:
        reason, message = state.reason, _last_message(state.message) or "it was lost"
    elif worker.pod_failed:
        reason, message = "", "its node rejected it"
    else:
        return None
    status = worker.pod.status
    said = status.message or message
    said += "; exit code 0 after that is no success" if worker.exited_zero else ""
    verdict = Verdict(
        outcome="Infrastructure",
        reason=status.reason or reason or JobReason.POD_REJECTED,
        message=f"{_name_worker(worker)}: {said}",
        worker=worker.index,
    )
    return Cause(at=at or otherwise, own_failure=False, verdict=verdict)


def _name_worker(worker: Worker) -> str:
    node = worker.pod.spec.node_name
    return f"worker {worker.index}" + (f" on node {node}" if node else "")


def _describe_exit(exit_: FailedContainer) -> str:
    state = exit_.state
    said = _last_message(state.message)
    text = f"container {exit_.container} ended with exit code {state.exit_code}"
    text += f" ({state.reason})" if state.reason else ""
    return text + (f": {said}" if said else "")


def _last_message(message: str) -> str:
    """Return a container's last message: its result's headline, or the end of its log."""
    try:
        result = read_result(message)
    except ResultUnreadable:
        return "" if looks_like_result(message) else last_lines(message)
    return result.headline if result else ""


def last_lines(text: str) -> str:
    """Return the end of a tenant's output in one line, without terminal controls."""
    plain = (_CONTROL.sub(" ", line).strip() for line in ESCAPES.sub("", text).splitlines())
    joined = " | ".join(line for line in plain if line)
    return joined if len(joined) <= SHOWN_CHARACTERS else f"…{joined[1 - SHOWN_CHARACTERS :]}"
