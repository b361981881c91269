# SPDX-License-Identifier: Apache-2.0
"""Notices: what the operator or a pod must learn after a change of the queue.

A notice is a value. Who observes the queue returns notices; its owner alone delivers them.
"""

import dataclasses
from typing import TypeAlias

from gpupack_crds import names
from gpupack_crds.gpujob_status import Preemption
from gpupack_kubeclient import objects
from gpupack_scheduler.ledger.claims import Allocation
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.queueing.pending.request import (
    GatedPodRequest,
    PodGroupRequest,
    QueueRequest,
)
from gpupack_scheduler.requests.pod_groups import Membership


@dataclasses.dataclass(frozen=True, slots=True)
class NewAnswer:
    """The operator's next call for this GPUJob has a new answer."""

    namespace: str
    job: str


@dataclasses.dataclass(frozen=True, slots=True)
class OpenGate:
    """The gate of a pod is to open for kube-scheduler; `place`: where the queue admitted it."""

    pod: objects.Pod
    place: Allocation | None
    member: Membership | None = None
    """The gang of a pod group that is admitted with the pod."""


@dataclasses.dataclass(frozen=True, slots=True)
class RecordPreemption:
    """The preemption for a pod is to be written into it; None: there is none any more."""

    pod: objects.Pod
    preemption: Preemption | None


Notice: TypeAlias = NewAnswer | OpenGate | RecordPreemption


class Notices:
    """The notices since they were last taken, in order."""

    def __init__(self) -> None:
        self._notices: list[Notice] = []

    def add(self, notice: Notice) -> None:
        """Add a notice."""
        self._notices.append(notice)

    def new_answer(self, attempt: AttemptKey) -> None:
        """Add the notice that the next call for this attempt's GPUJob has a new answer."""
        self.add(NewAnswer(attempt.namespace, attempt.job))

    def preemption(self, ask: QueueRequest, preemption: Preemption | None) -> None:
        """Add the notice that there is a preemption for this request, or none any more."""
        if isinstance(ask, GatedPodRequest):
            self.add(RecordPreemption(ask.pod, preemption))
        elif isinstance(ask, PodGroupRequest):
            self._of_group(ask, preemption)
        else:
            self.new_answer(ask.attempt)

    def _of_group(self, ask: PodGroupRequest, preemption: Preemption | None) -> None:
        """Write the preemption into one member; another that has an earlier one loses it."""
        for pod in (each.pod for each in ask.members):
            if pod is ask.first:
                self.add(RecordPreemption(pod, preemption))
            elif names.PREEMPTION_ANNOTATION in pod.metadata.annotations:
                self.add(RecordPreemption(pod, None))

    def take(self) -> tuple[Notice, ...]:
        """Return all notices and forget them."""
        taken, self._notices = tuple(self._notices), []
        return taken
