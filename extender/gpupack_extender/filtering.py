# SPDX-License-Identifier: Apache-2.0
"""filter: which nodes a pod may go to.

    worker of a GPUJob     its planned node, or why not now
    any other, decisive    decided now, one node; the place is assumed until bind comes
    any other, advisory    every node that fits

Texts depend on the cluster's state alone: kube-scheduler writes them into the pod, and a text
that varies would make each write trigger the next call.
"""

import dataclasses
from collections.abc import Callable

import gpupack_core as core
from gpupack_extender import asks
from gpupack_extender.ledger.claims import PodClaim, State
from gpupack_extender.ledger.ledger import Ledger
from gpupack_extender.ledger.workers import Worker, worker_of
from gpupack_extender.mismatch import mismatch
from gpupack_extender.policies import Policies
from gpupack_extender.settings import Decisions, Mode
from gpupack_extender.wire import ExtenderArgs, FilterResult

EVICTING_HELPS = frozenset(
    {
        core.Reason.TOO_FEW_FREE_GPUS,
        core.Reason.TOO_FEW_FREE_MIG_SLICES,
        core.Reason.NVLINK_CLIQUE_BUSY,
        core.Reason.SHARE_DOES_NOT_FIT,
        core.Reason.TOO_MANY_SHARES,
        core.Reason.CPU_EXHAUSTED,
        core.Reason.MEMORY_EXHAUSTED,
    }
)
"""Reasons that go away when pods do; the others are the node's own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Filter:
    """The filter verb as a function of the ledger."""

    ledger: Ledger
    policies: Policies
    decisions: Decisions
    may_decide: Callable[[], None]
    """Raises NotReady while no new place may be given."""

    def __call__(self, call: ExtenderArgs) -> FilterResult:
        """Answer one call.

        Raises:
            AskInvalid: the pod asks for something that cannot be read or served.
            NotReady: a new place would have to be decided about, and none may be now.
        """
        self.ledger.expire()
        held = self.ledger.books.pods.get(call.pod.metadata.uid)
        if held is not None and held.state is not State.ASSUMED:
            return _committed(held, call)
        worker = worker_of(call.pod)
        if worker is not None:
            return self._planned(worker, call)
        if self.decisions.mode is Mode.ADVISORY:
            return self._every(call)
        return self._one(held, call)

    def _planned(self, worker: Worker, call: ExtenderArgs) -> FilterResult:
        claim = self.ledger.books.workers.get(worker)
        if claim is None:
            return self._unplanned(worker, call)
        others = self.ledger.books.pods_of(worker)
        if others:
            return _nowhere(call, f"the worker's place is held by pod {others[0].name}")
        request = asks.pod_request(call.pod, self.decisions.observed_resources)
        if differs := mismatch(request, claim.place):
            return _nowhere(call, differs)
        obstacle = self.ledger.books.obstacle(claim.place)
        if obstacle:
            return _nowhere(call, f"the worker's place cannot be used: {obstacle}")
        return _exactly(claim.placement.node, call, otherwise="the worker is planned on node")

    def _unplanned(self, worker: Worker, call: ExtenderArgs) -> FilterResult:
        if self.ledger.jobs.is_known(worker.attempt):
            return _nowhere(call, f"{worker.attempt} is not admitted")
        return FilterResult(error=f"{worker.attempt} is not known yet")

    def _one(self, held: PodClaim | None, call: ExtenderArgs) -> FilterResult:
        if held is not None:
            if held.placement.node in call.node_names and not self._obstacle(held):
                self.ledger.renew(held, seconds=self.decisions.assume_seconds)
                return FilterResult(node_names=[held.placement.node])
            self.ledger.release(held)
        self.may_decide()
        request = asks.pod_request(call.pod, self.decisions.observed_resources)
        chosen = core.choose(
            self.ledger.cluster, request, self.policies.named(), candidates=call.node_names
        )
        if chosen is None:
            return self._refused(request, call)
        self.ledger.assume(call.pod, chosen, seconds=self.decisions.assume_seconds)
        return FilterResult(node_names=[chosen.node])

    def _every(self, call: ExtenderArgs) -> FilterResult:
        self.may_decide()
        request = asks.pod_request(call.pod, self.decisions.observed_resources)
        ranked = core.rank(
            self.ledger.cluster, request, self.policies.named(), candidates=call.node_names
        )
        fits = {each.node for each in ranked}
        refused = self._refused(request, call)
        return FilterResult(
            node_names=[name for name in call.node_names if name in fits],
            failed_nodes=refused.failed_nodes,
            failed_and_unresolvable_nodes=refused.failed_and_unresolvable_nodes,
        )

    def _refused(self, request: core.Request, call: ExtenderArgs) -> FilterResult:
        """Why each node that does not fit does not."""
        reasons = core.explain(self.ledger.cluster, request, candidates=call.node_names)
        texts = {reason: reason.describe(request) for reason in set(reasons.values())}
        failed: dict[str, str] = {}
        lasting: dict[str, str] = {}
        for name, reason in reasons.items():
            group = failed if reason in EVICTING_HELPS else lasting
            group[name] = texts[reason]
        return FilterResult(
            node_names=[], failed_nodes=failed, failed_and_unresolvable_nodes=lasting
        )

    def _obstacle(self, held: PodClaim) -> str:
        return self.ledger.books.obstacle(held.place)


def _committed(held: PodClaim, call: ExtenderArgs) -> FilterResult:
    """A Binding was sent or written: no other node can be right until its end is known."""
    if held.placement.node in call.node_names:
        return FilterResult(node_names=[held.placement.node])
    return FilterResult(error=f"the pod's binding to node {held.placement.node} is not settled")


def _exactly(node: core.NodeName, call: ExtenderArgs, *, otherwise: str) -> FilterResult:
    if node in call.node_names:
        return FilterResult(node_names=[node])
    return _nowhere(call, f"{otherwise} {node}, which kube-scheduler's own filters exclude")


def _nowhere(call: ExtenderArgs, text: str) -> FilterResult:
    return FilterResult(
        node_names=[], failed_and_unresolvable_nodes=dict.fromkeys(call.node_names, text)
    )
