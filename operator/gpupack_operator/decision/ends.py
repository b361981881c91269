# SPDX-License-Identifier: Apache-2.0
"""Did a container end by itself, or was its pod asked to end?

The exit code does not say: a program that saves a checkpoint on SIGTERM exits 0, and one that fails
while it is stopped has not failed by itself. So its end is compared with the request to end, which
a pod shows in one of four ways:

- kubectl drain, the Eviction API, a NoExecute taint, preemption by kube-scheduler, pod GC: the
  condition DisruptionTarget with a reason, and the deletion;
- kubectl delete, or a controller, such as that of a Job past its deadline: the deletion alone. It
  was requested a grace period before deletionTimestamp. (When the kubelet is done, the API server
  shortens the grace period and moves deletionTimestamp with it: the difference stays.)
- the kubelet, for pressure on its node or a shutdown: the condition with TerminationByKubelet, or
  only status.reason;
- a kubelet that restarts and rejects the pod, since one of its containers with devices does not run
  (kubernetes#138446): status.reason, but not where all containers exit 0. What is left then are
  conditions that the kubelet has written again, later than a container of the pod ended.

A pod that has ended is deleted and evicted like any other, so a request after the end changes
nothing.

The end is written by the node's clock, in whole seconds, and the request by another clock. An end
in the same second, or up to CLOCKS_SECONDS before the request, counts as interrupted. Where that is
wrong, a job runs once more, from its last checkpoint. The opposite mistake would report half of the
work as a success. It is also rare: most ends are not followed by a request at all, and the operator
judges an end within about a second.
"""

import dataclasses
import datetime as dt
from typing import Final

from gpupack_kube.objects import Condition, ContainerTerminated, Pod

CLOCKS_SECONDS: Final = 1.0
"""By how much the clocks of a node and of the API server may differ."""

BY_KUBELET: Final = "TerminationByKubelet"
"""The only reason of a DisruptionTarget that no deletion follows."""
DELETED: Final = "PodDeleted"
REJECTED: Final = "UnexpectedAdmissionError"
"""The kubelet's word for a pod that it does not admit."""

LOST_CONTAINER: Final = frozenset({"ContainerStatusUnknown", "Unknown"})
"""The kubelet's words, and the container runtime's, for a container whose end they did not see. The
exit code next to them (137, 255) is made up."""
NEVER_STARTED: Final = "StartError"
"""containerd's word for a container whose process it could not start, and its exit code 128."""
CUT_SHORT: Final = ("context canceled", "context deadline exceeded", "ttrpc: closed")
"""What containerd says of a start whose caller or shim went away in the middle of it, as a kubelet
does that is restarted. All other starts fail for what the template names."""


@dataclasses.dataclass(frozen=True, slots=True)
class Interruption:
    """A request that a pod end.

    Attributes:
        at: when it was made; None: the pod does not show it.
        reason: Kubernetes' word, or PodDeleted.
        message: a sentence for people.
    """

    at: dt.datetime | None
    reason: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class ByItself:
    """The container ended before anything asked its pod to end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Interrupted:
    """The container ended after a request."""

    by: Interruption


@dataclasses.dataclass(frozen=True, slots=True)
class Unknown:
    """How the container ended, or when, is not known."""


End = ByItself | Interrupted | Unknown


def end(pod: Pod, state: ContainerTerminated | None) -> End:
    """How a container of a pod ended; without a state nothing but the pod's phase is known."""
    if state is not None and _is_lost(state):
        return Unknown()
    by = interruption(pod)
    if by is None:
        return ByItself()
    if by.at is None:
        return Interrupted(by)
    finished_at = state.finished_at if state is not None else None
    if finished_at is None:
        return Unknown()
    margin = dt.timedelta(seconds=CLOCKS_SECONDS)
    return ByItself() if finished_at < by.at - margin else Interrupted(by)


def interruption(pod: Pod) -> Interruption | None:
    """What has asked a pod to end; None: nothing has.

    A DisruptionTarget alone asks for nothing: the deletion that follows it may be refused.
    """
    target, deleted_at = _disruption(pod), requested_at(pod)
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
    """Whether a kubelet forgot the pod's conditions after a container of it had ended.

    Both conditions are true before any container starts, and stay as they are.
    """
    ended = [
        each.state.terminated.finished_at
        for each in pod.status.container_statuses
        if each.state.terminated and each.state.terminated.finished_at
    ]
    written = {each.type: each.last_transition_time for each in pod.status.conditions}
    moments = [written.get(name) for name in ("PodScheduled", "Initialized")]
    return bool(ended) and all(at is not None and at > min(ended) for at in moments)


def requested_at(pod: Pod) -> dt.datetime | None:
    """When a pod's deletion was requested: deletionTimestamp lies a grace period later."""
    deletion = pod.metadata.deletion_timestamp
    grace = dt.timedelta(seconds=pod.metadata.deletion_grace_period_seconds)
    return deletion - grace if deletion else None


def _disruption(pod: Pod) -> Condition | None:
    found = (each for each in pod.status.conditions if each.type == "DisruptionTarget")
    return next((each for each in found if each.status == "True"), None)


def _is_final(pod: Pod, target: Condition) -> bool:
    """Whether the condition needs no deletion: the kubelet ends the pod, or the pod has failed."""
    return target.reason == BY_KUBELET or pod.status.phase == "Failed"


def _is_lost(state: ContainerTerminated) -> bool:
    if state.reason == NEVER_STARTED:
        return any(mark in state.message for mark in CUT_SHORT)
    return state.reason in LOST_CONTAINER
