# SPDX-License-Identifier: Apache-2.0
"""What broke an attempt first.

One broken worker breaks the others: peers lose their connection and exit, and the Job controller
deletes those that are left. So every pod is asked what happened to it and when, and the earliest
answer is the cause. It is the application's failure only if a container ended with an error by
itself: not deleted before, not disrupted by Kubernetes, not rejected or lost by its kubelet.
Moments have whole seconds; of two in the same second the application's failure comes first,
because the Job controller's deletions follow it at once.
"""

import dataclasses
import datetime as dt
import re

from gpupack_crds.errors import ResultUnreadable
from gpupack_crds.results import looks_like_result, read_result
from gpupack_kube.objects import ContainerTerminated
from gpupack_operator.decision.reasons import JobReason
from gpupack_operator.decision.times import after
from gpupack_operator.decision.view import AttemptView, Finding, Verdict
from gpupack_operator.decision.workers import Exit, Worker

SETTLE_SECONDS = 2.0
"""How long the news about other pods may take: a deletion is often the echo of a failure."""

LOST_CONTAINER = {"ContainerStatusUnknown", "Unknown"}
"""The kubelet's words, and the container runtime's, where nobody knows how a container ended. The
exit code beside them (137, 255) is made up."""
NEVER_STARTED = "StartError"
"""containerd's word for a container whose process it could not start, and its exit code 128."""
CUT_SHORT = ("context canceled", "context deadline exceeded", "ttrpc: closed")
"""What containerd says of a start whose caller or shim went away in the middle of it, as a kubelet
does that is restarted. All other starts fail for what the template names."""
SHOWN_CHARACTERS = 600

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""Escape sequences of terminals: ECMA-48's control sequences, operating system commands, others."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, and those that turn the direction of writing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """What happened to one worker."""

    at: dt.datetime
    own_failure: bool
    verdict: Verdict


def first_cause(view: AttemptView) -> Finding | None:
    """The earliest cause that the failure policy does not ignore."""
    found = [cause for worker in view.workers if (cause := cause_of(worker, view))]
    causes = [cause for cause in found if not is_ignored(cause, view)]
    if not causes:
        return None
    first = min(causes, key=lambda cause: (cause.at, not cause.own_failure))
    settled = first.at if first.own_failure else after(first.at, SETTLE_SECONDS)
    return Finding(due=settled, verdict=first.verdict)


def cause_of(worker: Worker, view: AttemptView) -> Cause | None:
    """What happened to a worker; None where nothing went wrong."""
    if worker.succeeded:
        return None
    if worker.exit and _by_itself(worker, worker.exit):
        return _own_failure(worker, worker.exit, view.started_at)
    return _infrastructure(worker, view.started_at)


def is_ignored(cause: Cause, view: AttemptView) -> bool:
    """Whether the failure policy lets a worker that failed by itself count as succeeded."""
    return cause.own_failure and view.action_for(cause.verdict.exit_code) == "Ignore"


def _by_itself(worker: Worker, exit_: Exit) -> bool:
    if worker.disruption or worker.pod.status.reason or _lost(exit_.state):
        return False
    deleted_at, finished_at = worker.deleted_at, exit_.state.finished_at
    return deleted_at is None or (finished_at is not None and finished_at < deleted_at)


def _lost(state: ContainerTerminated) -> bool:
    if state.reason == NEVER_STARTED:
        return any(mark in state.message for mark in CUT_SHORT)
    return state.reason in LOST_CONTAINER


def _own_failure(worker: Worker, exit_: Exit, otherwise: dt.datetime) -> Cause:
    is_worker = exit_.container == worker.main_container
    killed = exit_.state.reason == "OOMKilled"
    verdict = Verdict(
        outcome="Failed",
        reason=JobReason.OUT_OF_MEMORY if killed else JobReason.WORKER_FAILED,
        message=f"{_who(worker)}: {_how(exit_)}",
        exit_code=exit_.state.exit_code if is_worker else None,
        worker=worker.index,
    )
    return Cause(at=exit_.state.finished_at or otherwise, own_failure=True, verdict=verdict)


def _infrastructure(worker: Worker, otherwise: dt.datetime) -> Cause | None:
    """A moment that nobody wrote down must not be `now`: it would never settle."""
    if target := worker.disruption:
        at, reason, message = target.last_transition_time, target.reason, target.message
    elif worker.deleted_at:
        at, reason, message = worker.deleted_at, str(JobReason.POD_DELETED), "the pod was deleted"
    elif worker.exit:
        state = worker.exit.state
        at, reason, message = state.finished_at, state.reason, _said(state.message) or "it was lost"
    elif worker.pod.status.phase == "Failed":
        at, reason, message = worker.bound_at, "", "its node rejected it"
    else:
        return None
    status = worker.pod.status
    verdict = Verdict(
        outcome="Infrastructure",
        reason=status.reason or reason or JobReason.POD_REJECTED,
        message=f"{_who(worker)}: {status.message or message}",
        worker=worker.index,
    )
    return Cause(at=at or otherwise, own_failure=False, verdict=verdict)


def _who(worker: Worker) -> str:
    node = worker.pod.spec.node_name
    return f"worker {worker.index}" + (f" on node {node}" if node else "")


def _how(exit_: Exit) -> str:
    state = exit_.state
    said = _said(state.message)
    text = f"container {exit_.container} ended with exit code {state.exit_code}"
    text += f" ({state.reason})" if state.reason else ""
    return text + (f": {said}" if said else "")


def _said(message: str) -> str:
    """What a container said last: its result's headline, or the end of its message or log."""
    try:
        result = read_result(message)
    except ResultUnreadable:
        return "" if looks_like_result(message) else last_lines(message)
    return result.headline if result else ""


def last_lines(text: str) -> str:
    """The end of what a tenant's program wrote, in one line and without what moves a terminal."""
    plain = (_CONTROL.sub(" ", line).strip() for line in ESCAPES.sub("", text).splitlines())
    joined = " | ".join(line for line in plain if line)
    return joined if len(joined) <= SHOWN_CHARACTERS else f"…{joined[1 - SHOWN_CHARACTERS :]}"
