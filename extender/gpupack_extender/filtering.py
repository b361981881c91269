# SPDX-License-Identifier: Apache-2.0
"""Verb filter: the nodes that a pod may use.

    worker of a GPUJob     its planned node, or why not now
    any other, decisive    one node if the queue admits it now; the place is assumed until bind
    any other, advisory    every node that fits, if the queue admits it on any

If the only obstacle is the hold on a finished pod's GPUs, nothing is decided: kube-scheduler gets
no event when the hold ends, and would retry only after minutes, while after an error it retries
within seconds.

Texts depend on the cluster's state alone: kube-scheduler writes them into the pod, and a text that
varies would make each write trigger the next call.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

from gpupack_crds import names
from gpupack_extender.unknown_jobs import UnknownJobs
from gpupack_extender.wire import FilterResult
from gpupack_placement import Node, NodeName, Reason, Request, choose, explain, nearly, rank
from gpupack_queue import Wait
from gpupack_scheduler.decisions import Decisions, Mode
from gpupack_scheduler.errors import BindRefused, RequestMismatch
from gpupack_scheduler.ledger.claims import PodClaim, State, WorkerClaim
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.workers import WorkerKey
from gpupack_scheduler.policies import Policies
from gpupack_scheduler.queueing.queue_owner import QueueOwner
from gpupack_scheduler.requests.mismatch import worker_place
from gpupack_scheduler.requests.pod_request import PodRequest

RESERVED = "its GPUs are reserved for a job for which others are being stopped"

HOLD_ENDS_SOON = "GPUs of a finished pod are held until its node's agent can have said that it runs"

Nodes = Sequence[NodeName]
"""Nodes that passed kube-scheduler's own filters."""

EVICTING_HELPS = frozenset(
    {
        Reason.TOO_FEW_FREE_GPUS,
        Reason.TOO_FEW_FREE_MIG_SLICES,
        Reason.TOO_FEW_FREE_REPLICAS,
        Reason.NVLINK_CLIQUE_BUSY,
        Reason.SHARE_DOES_NOT_FIT,
        Reason.SHARED_BY_OTHERS,
        Reason.TOO_MANY_SHARES,
        Reason.INSUFFICIENT_CPU,
        Reason.INSUFFICIENT_MEMORY,
        Reason.INSUFFICIENT_RESOURCE,
        Reason.TOO_MANY_PODS,
    }
)
"""Reasons that end when pods end; the other reasons depend on the node alone."""


@dataclasses.dataclass(frozen=True, slots=True)
class Filter:
    """Verb filter as a function of the ledger."""

    ledger: Ledger
    policies: Policies
    decisions: Decisions
    may_decide: Callable[[], None]
    """Raises NotReady while no new place may be given."""
    unknown_jobs: UnknownJobs
    owner: QueueOwner

    def __call__(self, ask: PodRequest, nodes: Nodes) -> FilterResult:
        """Answer one call.

        Raises:
            NotReady: the pod needs a new place, and none may be given now.
        """
        self.ledger.expire()
        held = self.ledger.claims.pods.get(ask.uid)
        if held is not None and held.state is not State.ASSUMED:
            return _committed(held, nodes)
        if ask.request is None:
            return nowhere(nodes, ask.refusal)
        if ask.worker is not None:
            return self._planned(ask.uid, ask.worker, ask.request, nodes)
        if self.decisions.mode is Mode.ADVISORY:
            return self._every(ask, nodes)
        return self._one(ask, held, nodes)

    def _planned(self, uid: str, worker: WorkerKey, request: Request, nodes: Nodes) -> FilterResult:
        claim = self.ledger.claims.workers.get(worker)
        if claim is None:
            return self._unplanned(uid, worker, nodes)
        try:
            place = worker_place(self.ledger.claims, worker, request)
        except RequestMismatch as differs:
            if self._may_share_its_pod(claim):
                return FilterResult(error=f"the places of {worker.attempt} are not known yet")
            return nowhere(nodes, str(differs))
        except BindRefused as refused:
            return nowhere(nodes, str(refused))
        return _exactly(place.node, nodes, otherwise="the worker is planned on node")

    def _may_share_its_pod(self, claim: WorkerClaim) -> bool:
        """Tell whether the pod may have more workers.

        The watch shows this with the written plan.
        """
        if claim.state is not State.PLANNED:
            return False
        shown = self.ledger.jobs.shown(claim.worker.attempt.job_uid)
        return shown is None or claim.worker.index < shown.least

    def _unplanned(self, uid: str, worker: WorkerKey, nodes: Nodes) -> FilterResult:
        if self.ledger.jobs.is_known(worker.attempt):
            return nowhere(nodes, f"{worker.attempt} is not admitted")
        if self.unknown_jobs.are_none(uid):
            return nowhere(nodes, f"there is no {worker.attempt}")
        return FilterResult(error=f"{worker.attempt} is not known yet")

    def _one(self, ask: PodRequest, held: PodClaim | None, nodes: Nodes) -> FilterResult:
        if held is not None:
            obstacle = self.ledger.claims.obstacle(held.allocation, may_be_left=True)
            if held.placement.node in nodes and not obstacle:
                self.ledger.renew(held, seconds=self.decisions.assume_seconds)
                return FilterResult(node_names=[held.placement.node])
            self.ledger.release(held)
        self.may_decide()
        chosen = self.owner.place(ask, nodes)
        if isinstance(chosen, Wait):
            return self._waits(ask.served(), chosen, nodes)
        if isinstance(chosen, PodClaim):
            return FilterResult(node_names=[chosen.placement.node])
        self.ledger.assume(ask, chosen, seconds=self.decisions.assume_seconds)
        return FilterResult(node_names=[chosen.node])

    def _waits(self, request: Request, wait: Wait, nodes: Nodes) -> FilterResult:
        """Return why each node lacks free resources, or why the queue does not admit the pod."""
        if not wait.lacks_only_gpus:
            return nowhere(nodes, wait.cause_without_times)
        return self._not_yet(request, nodes) or self._refused(request, nodes)

    def _every(self, ask: PodRequest, nodes: Nodes) -> FilterResult:
        self.may_decide()
        request, chosen = ask.served(), self.owner.place(ask, nodes)
        if isinstance(chosen, Wait):
            return self._waits(request, chosen, nodes)
        ranked = rank(self.ledger.cluster, request, self.policies.named(), candidates=nodes)
        fits = {each.node for each in ranked}
        refused = self._refused(request, nodes)
        return FilterResult(
            node_names=[name for name in nodes if name in fits],
            failed_nodes=refused.failed_nodes,
            failed_and_unresolvable_nodes=refused.failed_and_unresolvable_nodes,
        )

    def _not_yet(self, request: Request, nodes: Nodes) -> FilterResult | None:
        """Return that nothing is decided, if the pod fits once holds of some seconds have ended."""
        later = self.ledger.claims.after_holds()
        if later is None:
            return None
        fits = choose(later, request, self.policies.named(), candidates=nodes)
        return FilterResult(error=HOLD_ENDS_SOON) if fits else None

    def _refused(self, request: Request, nodes: Nodes) -> FilterResult:
        """Return why each node does not fit, and the nearest misses."""
        cluster = self.ledger.cluster
        miss, near = nearly(cluster, request, candidates=nodes)
        less = f"; would fit with {miss.resource.less(miss.less)}" if miss else ""

        @functools.cache
        def text(reason: Reason, resources: tuple[str, ...]) -> str:
            return reason.describe(request, found=resources)

        failed: dict[str, str] = {}
        lasting: dict[str, str] = {}
        why = explain(cluster, request, candidates=nodes)
        for name, reason in why.items():
            group = failed if reason in EVICTING_HELPS else lasting
            is_other = reason is Reason.RESOURCE_NAME_MISMATCH
            resources = _resources(cluster.node(name)) if is_other else ()
            group[name] = text(reason, resources) + less * (name in near)
        failed |= dict.fromkeys((name for name in nodes if name not in why), RESERVED)
        return FilterResult(
            node_names=[], failed_nodes=failed, failed_and_unresolvable_nodes=lasting
        )


def _resources(node: Node | None) -> tuple[str, ...]:
    """Return the resource names with which the node's GPUs are requested."""
    return tuple(name or names.GPU for name in node.resources) if node else ()


def _committed(held: PodClaim, nodes: Nodes) -> FilterResult:
    """Return the node of a Binding that was sent: no other is valid until its outcome is known."""
    if held.placement.node in nodes:
        return FilterResult(node_names=[held.placement.node])
    return FilterResult(error=f"the pod's binding to node {held.placement.node} is not settled")


def _exactly(node: NodeName, nodes: Nodes, *, otherwise: str) -> FilterResult:
    if node in nodes:
        return FilterResult(node_names=[node])
    return nowhere(nodes, f"{otherwise} {node}, which kube-scheduler's own filters exclude")


def nowhere(nodes: Nodes, text: str) -> FilterResult:
    """Return that the pod fits on none of the nodes, even after evictions."""
    return FilterResult(node_names=[], failed_and_unresolvable_nodes=dict.fromkeys(nodes, text))
