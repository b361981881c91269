# SPDX-License-Identifier: Apache-2.0
"""Receivers of the queue's decisions."""

import dataclasses
from typing import Protocol

from gpupack_crds.gpujob_status import Preemption
from gpupack_kubeclient import objects
from gpupack_scheduler.ledger.claims import Allocation
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.queueing.turns import Turns


class PodWriter(Protocol):
    """A writer of decisions into pending pods; it writes soon, not at once."""

    def open(self, pod: objects.Pod, place: Allocation | None) -> None:
        """Open the gate of a pod for kube-scheduler; `place`: where the queue admitted it."""

    def record(self, pod: objects.Pod, preemption: Preemption | None) -> None:
        """Write the preemption for the pod; None: there is none any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Notifiers:
    """The notifier of decisions: GPUJobs by a turn for the operator, pods by a write into them."""

    turns: Turns
    gates: PodWriter

    def call(self, attempt: AttemptKey) -> None:
        """Notify the operator that its next call for the GPUJob has a new answer."""
        self.turns.notify(attempt.namespace, attempt.job)
