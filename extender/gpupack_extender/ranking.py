# SPDX-License-Identifier: Apache-2.0
"""prioritize: 0 to 10 for each node that passed.

kube-scheduler asks only where more than one node passed: in advisory mode. Scores are ranks, not
the policy's own figures: those have another scale for each policy, and ten steps would make
unlike nodes equal.
"""

import dataclasses

import gpupack_core as core
from gpupack_extender import asks
from gpupack_extender.ledger.ledger import Ledger
from gpupack_extender.ledger.workers import worker_of
from gpupack_extender.policies import Policies
from gpupack_extender.settings import Decisions
from gpupack_extender.wire import ExtenderArgs, HostPriority

BEST = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Prioritize:
    """The prioritize verb as a function of the ledger."""

    ledger: Ledger
    policies: Policies
    decisions: Decisions

    def __call__(self, call: ExtenderArgs) -> list[HostPriority]:
        """Answer one call.

        Raises:
            AskInvalid: the pod asks for something that cannot be read or served.
        """
        self.ledger.expire()
        scores = self._scores(call)
        return [HostPriority(host=name, score=scores.get(name, 0)) for name in call.node_names]

    def _scores(self, call: ExtenderArgs) -> dict[str, int]:
        books, worker = self.ledger.books, worker_of(call.pod)
        held = books.pods.get(call.pod.metadata.uid)
        claim = held or (books.workers.get(worker) if worker else None)
        if claim is not None:
            return {claim.placement.node: BEST}
        return self._ranks(call)

    def _ranks(self, call: ExtenderArgs) -> dict[str, int]:
        ranked = core.rank(
            self.ledger.cluster,
            asks.pod_request(call.pod, self.decisions.observed_resources),
            self.policies.named(),
            candidates=call.node_names,
        )
        levels = sorted({each.score for each in ranked}, reverse=True)
        step = {score: BEST - BEST * i // len(levels) for i, score in enumerate(levels)}
        return {each.node: step[each.score] for each in ranked}
