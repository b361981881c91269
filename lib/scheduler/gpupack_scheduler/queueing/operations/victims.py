# SPDX-License-Identifier: Apache-2.0
"""Victims that are to end, of preemptions that are written.

attempts, for a GPUJob   the operator reads them in its status
attempts, for a pod      the operator gets them as orders
pods                     they are evicted here; all members of a pod group together
"""

from collections.abc import Iterator

from gpupack_crds.gpujob_status import PREEMPTION_TEXTS
from gpupack_crds.plan import Stop
from gpupack_kubeclient import objects
from gpupack_queue import Preempt, Queue, Victim
from gpupack_queue.explain.reasons import name_of
from gpupack_scheduler.ledger.claims import State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.operations import status
from gpupack_scheduler.queueing.operations.operation import Event, Operations, Phase
from gpupack_scheduler.queueing.pending.pending_requests import PendingRequests
from gpupack_scheduler.queueing.pending.request import (
    GangRequest,
    GatedPodRequest,
    PodGroupRequest,
    QueueRequest,
    is_attempt,
    pods_of,
)
from gpupack_scheduler.queueing.pods.conditions import Eviction
from gpupack_scheduler.queueing.running.holders import has_ended


class Victims:
    """The victims of preemptions in phase Written.

    Args:
        ledger: GPUJobs and pods from the watch.
        queue: the queue with the running jobs.
        waiting: the requests of the preemptors.
        preemptions: the preemptions that are not over.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: Queue,
        waiting: PendingRequests,
        preemptions: Operations[Preempt],
    ) -> None:
        self._ledger, self._queue, self._waiting = ledger, queue, waiting
        self._preemptions = preemptions

    def see(self) -> None:
        """Record of which preemptions all victims end: these need no more orders."""
        for job, decision in self._preemptions.in_phase(Phase.WRITTEN):
            if all(self._is_ending(victim) for victim in decision.victims):
                self._preemptions.apply(job, Event.VICTIMS_END)

    def stops(self) -> tuple[Stop, ...]:
        """Return attempts that must end for pods."""
        return tuple(
            Stop(
                attempt=victim.job,
                reason=victim.reason.value,
                namespace=ask.namespace,
                pod=_pod_of(ask).metadata.name,
            )
            for ask, victim in self._to_end()
            if not isinstance(ask, GangRequest)
            and is_attempt(victim.job)
            and not status.is_moved(victim)
        )

    def evictions(self) -> Iterator[Eviction]:
        """Yield pods that must end, for any preemptor, and are not being deleted yet."""
        for ask, victim in self._to_end():
            running = self._queue.state.running.get(victim.job)
            if running is None:
                continue
            for claim in pods_of(self._ledger.claims, victim.job):
                if claim.leaves or claim.state is not State.BOUND:
                    continue
                preemptor = name_of(ask.job, to=running.job)
                why = f"for {preemptor}, {PREEMPTION_TEXTS[victim.reason.value]}"
                yield Eviction(claim.uid, claim.namespace, claim.name, str(victim.reason), why)

    def _to_end(self) -> Iterator[tuple[QueueRequest, Victim]]:
        """Yield the victims that are to end, each with the request of its preemptor."""
        for job, decision in self._preemptions.in_phase(Phase.WRITTEN):
            waiting = self._waiting.get(job)
            if waiting is not None:
                for victim in decision.victims:
                    yield waiting.ask, victim

    def _is_ending(self, victim: Victim) -> bool:
        if victim.job not in self._queue.state.running:
            return True
        if is_attempt(victim.job):
            return has_ended(self._ledger, victim.job)
        return all(claim.leaves for claim in pods_of(self._ledger.claims, victim.job))


def _pod_of(ask: GatedPodRequest | PodGroupRequest) -> objects.Pod:
    return ask.first if isinstance(ask, PodGroupRequest) else ask.pod
