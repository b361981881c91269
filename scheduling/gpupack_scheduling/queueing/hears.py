# SPDX-License-Identifier: Apache-2.0
"""Who hears of what the queue decides."""

import dataclasses
from typing import Protocol

from gpupack_crds.gpujob_status import Preemption
from gpupack_kube import objects
from gpupack_scheduling.ledger.claims import Allocation
from gpupack_scheduling.ledger.workers import AttemptKey
from gpupack_scheduling.queueing.turns import Turns


class WritesPods(Protocol):
    """Who writes what the queue decides into pods that wait; soon, not at once."""

    def open(self, pod: objects.Pod, place: Allocation | None) -> None:
        """Let kube-scheduler see the pod; with a place: let in by the queue, to go there."""

    def record(self, pod: objects.Pod, preemption: Preemption | None) -> None:
        """Write down who is stopped for it; None: nobody is any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Hears:
    """Of a GPUJob's turn the operator; of a pod's kube-scheduler, by what is written into it."""

    turns: Turns
    gates: WritesPods

    def call(self, attempt: AttemptKey) -> None:
        """The GPUJob has something to hear."""
        self.turns.give(attempt.namespace, attempt.job)
