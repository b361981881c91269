# SPDX-License-Identifier: Apache-2.0
"""Decision whether a container ended by itself, or after a request that its pod end.

The exit code does not answer this: a program that saves a checkpoint on SIGTERM exits with 0, and
one that fails while it is stopped has not failed by itself. So the container's end is compared
with the request to end, which a pod shows in one of four ways:

- kubectl drain, the Eviction API, a NoExecute taint, preemption by kube-scheduler, pod GC: the
  condition DisruptionTarget with a reason, and the deletion;
- kubectl delete, or a controller, such as that of a Job past its deadline: the deletion alone. It
  was requested a grace period before deletionTimestamp. (When the kubelet is done, the API server
  shortens the grace period and moves deletionTimestamp with it: the difference stays.)
- the kubelet, for pressure on its node or a shutdown: the condition with TerminationByKubelet, or
  only status.reason;
- a kubelet that restarts and rejects the pod, since one of its containers with devices does not run
  (kubernetes#138446): status.reason, but not where all containers exit with 0. Then the only signs
  are conditions that the kubelet has written again, later than a container of the pod ended.

An ended pod is deleted and evicted like any other, so a request after the end changes nothing.

The end is written by the node's clock, in whole seconds, and the request by another clock. An end
in the same second, or up to CLOCKS_SECONDS before the request, counts as interrupted. If that is
wrong, a job runs once more, from its last checkpoint. The opposite error would report half of the
work as a success. The error is also rare: most ends are not followed by a request at all, and the
operator judges an end within about a second.
"""

import dataclasses
import datetime as dt
from typing import Final

from gpupack_kubeclient.objects import Condition, ContainerTerminated, Pod

CLOCK_SKEW_SECONDS: Final = 1.0
"""Largest expected difference between the clocks of a node and of the API server."""

BY_KUBELET: Final = "TerminationByKubelet"
"""The only reason of a DisruptionTarget that no deletion follows."""
DELETED: Final = "PodDeleted"
REJECTED: Final = "UnexpectedAdmissionError"
"""The kubelet's reason for a pod that it does not admit."""

LOST_CONTAINER: Final = frozenset({"ContainerStatusUnknown", "Unknown"})
"""Reasons of the kubelet and the container runtime for a container whose end they did not see. The
exit code next to them (137, 255) is invented.
"""
NEVER_STARTED: Final = "StartError"
"""containerd's reason for a container whose process it could not start; its exit code is 128."""
ABORTED_START_MARKS: Final = ("context canceled", "context deadline exceeded", "ttrpc: closed")
"""Parts of containerd's message about a start whose caller or shim disappeared during it, as when a
kubelet restarts. All other starts fail because of what the template names.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Interruption:
    """A request that a pod end.

    Attributes:
        at: when the request was made; None: the pod does not show it.
        reason: Kubernetes' reason, or PodDeleted.
        message: a sentence for users.
    """

    at: dt.datetime | None
    reason: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class EndedByItself:
    """Container that ended before any request that its pod end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Interrupted:
    """Container that ended after a request."""

    by: Interruption


@dataclasses.dataclass(frozen=True, slots=True)
class UnknownEnd:
    """Container of which it is not known how or when it ended."""


End = EndedByItself | Interrupted | UnknownEnd


def classify_end(pod: Pod, state: ContainerTerminated | None) -> End:
    """Classify the end of a container of a pod; without a state only the pod's phase is known."""
    if state is not None and _is_lost(state):
        return UnknownEnd()
    by = interruption(pod)
    if by is None:
        return EndedByItself()
    if by.at is None:
        return Interrupted(by)
    finished_at = state.finished_at if state is not None else None
    if finished_at is None:
        return UnknownEnd()
    margin = dt.timedelta(seconds=CLOCK_SKEW_SECONDS)
    return EndedByItself() if finished_at < by.at - margin else Interrupted(by)


def interruption(pod: Pod) -> Interruption | None:
    """Return what has requested a pod's end; None: nothing has.

    A DisruptionTarget alone is no request: the deletion that follows it may be refused.
    """
    target, deleted_at = _disruption(pod), deletion_requested_at(pod)
    if target is not None and (deleted_at or _is_final(pod, target)):
        is_before = target.reason == BY_KUBELET or deleted_at is None
        at = target.last_transition_time if is_before else deleted_at
        return Interruption(at, target.reason, target.message)
    if deleted_at:
        return Interruption(deleted_at, DELETED, "the pod was deleted")
    if pod.status.reason:
        return Interruption(None, pod.status.reason, pod.status.message)
    if _was_rejected(pod):
        return Interruption(None, REJECTED, "the kubelet restarted and ended the pod's containers")
    return None


def _was_rejected(pod: Pod) -> bool:
    """Tell whether a kubelet rewrote the pod's conditions after one of its containers had ended.

    Both conditions become true before any container starts, and do not change afterwards.
    """
    ended = [
        each.state.terminated.finished_at
        for each in pod.status.container_statuses
        if each.state.terminated and each.state.terminated.finished_at
    ]
    written = {each.type: each.last_transition_time for each in pod.status.conditions}
    moments = [written.get(name) for name in ("PodScheduled", "Initialized")]
    return bool(ended) and all(at is not None and at > min(ended) for at in moments)


def deletion_requested_at(pod: Pod) -> dt.datetime | None:
    """Return when a pod's deletion was requested: a grace period before deletionTimestamp."""
    deletion = pod.metadata.deletion_timestamp
    grace = dt.timedelta(seconds=pod.metadata.deletion_grace_period_seconds)
    return deletion - grace if deletion else None


def _disruption(pod: Pod) -> Condition | None:
    found = (each for each in pod.status.conditions if each.type == "DisruptionTarget")
    return next((each for each in found if each.status == "True"), None)


def _is_final(pod: Pod, target: Condition) -> bool:
    """Tell whether no deletion need follow: the kubelet ends the pod, or the pod has failed."""
    return target.reason == BY_KUBELET or pod.status.phase == "Failed"


def _is_lost(state: ContainerTerminated) -> bool:
    if state.reason == NEVER_STARTED:
        return any(mark in state.message for mark in ABORTED_START_MARKS)
    return state.reason in LOST_CONTAINER
