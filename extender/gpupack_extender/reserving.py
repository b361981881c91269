# SPDX-License-Identifier: Apache-2.0
"""First half of bind: check again, and hold.

filter and bind are two calls, binds overlap, and in advisory mode kube-scheduler chose the node: so
filter's result is checked again here. Nothing awaits between the check and the hold.
"""

import dataclasses
from collections.abc import Callable

from gpupack_placement import NodeName, Refusal, Request, decide, policy_named
from gpupack_queue import Wait
from gpupack_scheduler.decisions import Decisions
from gpupack_scheduler.errors import BindRefused
from gpupack_scheduler.ledger.claims import Allocation, PodClaim, State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.queue_owner import QueueOwner
from gpupack_scheduler.requests.mismatch import worker_place
from gpupack_scheduler.requests.pod_request import PodRequest


@dataclasses.dataclass(frozen=True, slots=True)
class Reserve:
    """Function that holds a pod's place on a node while its Binding is under way."""

    ledger: Ledger
    owner: QueueOwner
    decisions: Decisions
    may_decide: Callable[[], None]
    """Raises NotReady while no new place may be given."""

    def __call__(self, ask: PodRequest, node: str) -> PodClaim:
        """Hold the place; return a claim that is bound or landed already unchanged.

        Raises:
            BindRefused: the ledger does not give this pod this node.
            RequestMismatch: a worker's pod requests other GPUs than the worker's place has.
            NotReady: the pod needs a new place, and none may be given now.
        """
        self.ledger.expire()
        held = self.ledger.claims.pods.get(ask.uid)
        if held is not None and held.placement.node == node and _is_settled(held):
            return held
        allocation = self._allocation(ask, held, node)
        if allocation.node != node:
            raise BindRefused(f"the pod's place is on node {allocation.node}, not on {node}")
        return self.ledger.start_bind(ask, allocation)

    def _allocation(self, ask: PodRequest, held: PodClaim | None, node: str) -> Allocation:
        if held is None and ask.worker is not None:
            return worker_place(self.ledger.claims, ask.worker, _request(ask))
        allocation = self._decided(ask, node) if held is None else held.allocation
        if obstacle := self.ledger.claims.obstacle(allocation):
            raise BindRefused(obstacle)
        return allocation

    def _decided(self, ask: PodRequest, node: str) -> Allocation:
        self.may_decide()
        request, here = _request(ask), [NodeName(node)]
        chosen = self.owner.place(ask, here)
        if isinstance(chosen, PodClaim):
            return chosen.allocation
        if not isinstance(chosen, Wait):
            return self.ledger.claims.allocation(chosen)
        if chosen.lacks_only_gpus:
            cluster, policy = self.ledger.cluster, policy_named("first-fit")
            refusal = decide(cluster, request, policy, candidates=here)
            if isinstance(refusal, Refusal):
                raise BindRefused(refusal.message)
        raise BindRefused(chosen.cause_without_times)


def _request(ask: PodRequest) -> Request:
    if ask.request is None:
        raise BindRefused(ask.refusal)
    return ask.request


def _is_settled(claim: PodClaim) -> bool:
    return claim.state in {State.LANDED, State.BOUND}
