# SPDX-License-Identifier: Apache-2.0
"""The first half of bind: look once more, and hold.

filter and bind are two calls, binds overlap, and in advisory mode kube-scheduler chose the node:
whatever filter said is looked at anew here. Nothing awaits between the look and the hold.
"""

import dataclasses
from collections.abc import Callable

import gpupack_core as core
from gpupack_extender import asks
from gpupack_extender.errors import AskInvalid, AskMismatch, BindRefused
from gpupack_extender.ledger.claims import Place, PodClaim, State
from gpupack_extender.ledger.ledger import Ledger
from gpupack_extender.ledger.workers import Worker, worker_of
from gpupack_extender.mismatch import mismatch
from gpupack_extender.policies import Policies
from gpupack_extender.settings import Decisions
from gpupack_kube import objects


@dataclasses.dataclass(frozen=True, slots=True)
class Reserve:
    """Holds a pod's place on a node while its Binding is on the way."""

    ledger: Ledger
    policies: Policies
    decisions: Decisions
    may_decide: Callable[[], None]
    """Raises NotReady while no new place may be given."""

    def __call__(self, pod: objects.Pod, node: str) -> PodClaim:
        """Hold the place; a claim that is bound or landed already is returned as it is.

        Raises:
            BindRefused: the ledger does not give this pod this node.
            AskMismatch: it is a worker's pod and asks for other GPUs than the worker's place has.
            NotReady: a new place would have to be decided about, and none may be now.
        """
        self.ledger.expire()
        held = self.ledger.books.pods.get(pod.metadata.uid)
        if held is not None and held.placement.node == node and _is_settled(held):
            return held
        place = self._place(pod, held, node)
        obstacle = self.ledger.books.obstacle(place)
        if obstacle:
            raise BindRefused(obstacle)
        return self.ledger.start_bind(pod, place)

    def _place(self, pod: objects.Pod, held: PodClaim | None, node: str) -> Place:
        worker = worker_of(pod)
        if held is not None:
            place = held.place
        elif worker is not None:
            place = self._planned(pod, worker)
        else:
            place = self._decided(pod, node)
        if place.node != node:
            raise BindRefused(f"the pod's place is on node {place.node}, not on {node}")
        return place

    def _planned(self, pod: objects.Pod, worker: Worker) -> Place:
        claim = self.ledger.books.workers.get(worker)
        if claim is None:
            raise BindRefused(f"{worker.attempt} has no place for worker {worker.index}")
        others = self.ledger.books.pods_of(worker)
        if others:
            raise BindRefused(f"the worker's place is held by pod {others[0].name}")
        if differs := mismatch(self._request(pod), claim.place):
            raise AskMismatch(differs)
        return claim.place

    def _decided(self, pod: objects.Pod, node: str) -> Place:
        self.may_decide()
        chosen = core.decide(
            self.ledger.cluster,
            self._request(pod),
            self.policies.named(),
            candidates=[core.NodeName(node)],
        )
        if isinstance(chosen, core.Refusal):
            raise BindRefused(chosen.message)
        return self.ledger.books.place(chosen)

    def _request(self, pod: objects.Pod) -> core.Request:
        try:
            return asks.pod_request(pod, self.decisions.observed_resources)
        except AskInvalid as error:
            raise BindRefused(str(error)) from error


def _is_settled(claim: PodClaim) -> bool:
    return claim.state in {State.LANDED, State.BOUND}
