# SPDX-License-Identifier: Apache-2.0
"""Verb prioritize: 0 to 10 for each node that passed.

kube-scheduler calls it only if more than one node passed: in advisory mode. Scores are ranks, not
the policy's own values: those have a different scale for each policy, and ten steps would make
different nodes equal.
"""

import dataclasses
from collections.abc import Sequence

from gpupack_extender.wire import HostPriority
from gpupack_placement import NodeName, Request, rank
from gpupack_scheduler.decisions import Decisions
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.policies import Policies
from gpupack_scheduler.requests.pod_request import PodRequest

BEST = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Prioritize:
    """Verb prioritize as a function of the ledger."""

    ledger: Ledger
    policies: Policies
    decisions: Decisions

    def __call__(self, ask: PodRequest, nodes: Sequence[NodeName]) -> list[HostPriority]:
        """Answer one call."""
        self.ledger.expire()
        scores = self._scores(ask, nodes)
        return [HostPriority(host=name, score=scores.get(name, 0)) for name in nodes]

    def _scores(self, ask: PodRequest, nodes: Sequence[NodeName]) -> dict[str, int]:
        table = self.ledger.claims
        held = table.pods.get(ask.uid)
        claim = held or (table.workers.get(ask.worker) if ask.worker else None)
        if claim is not None:
            return {claim.placement.node: BEST}
        return self._ranks(ask.request, nodes) if ask.request else {}

    def _ranks(self, request: Request, nodes: Sequence[NodeName]) -> dict[str, int]:
        ranked = rank(self.ledger.cluster, request, self.policies.named(), candidates=nodes)
        levels = sorted({each.score for each in ranked}, reverse=True)
        step = {score: BEST - BEST * i // len(levels) for i, score in enumerate(levels)}
        return {each.node: step[each.score] for each in ranked}
