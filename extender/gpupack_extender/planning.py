# SPDX-License-Identifier: Apache-2.0
"""plan: places for all workers of an attempt, or none.

Asking again for the same attempt gives the same places while they are held and can be used. A
plan that cannot be used any more is dropped and made anew, unless it is written already: what
stands in a GPUJob's status is the operator's to change.
"""

import dataclasses

import gpupack_core as core
from gpupack_crds.gpujob_status import WorkerPlacement
from gpupack_crds.plan import PlanRefusal, PlanRequest, PlanResponse
from gpupack_extender import asks
from gpupack_extender.ledger import claims
from gpupack_extender.ledger.claims import State, WorkerClaim
from gpupack_extender.ledger.ledger import Ledger
from gpupack_extender.ledger.workers import Attempt
from gpupack_extender.policies import Policies
from gpupack_extender.settings import Decisions


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The plan API as a function of the ledger."""

    ledger: Ledger
    policies: Policies
    decisions: Decisions

    def __call__(self, call: PlanRequest) -> PlanResponse | PlanRefusal:
        """Answer one call.

        Raises:
            AskInvalid: the spec or the pod spec cannot be read or served.
        """
        self.ledger.expire()
        attempt = Attempt(
            namespace=call.namespace, job=call.name, job_uid=call.uid, number=call.attempt
        )
        gang = asks.gang(
            call.spec, asks.read_pod_spec(call.pod_spec), self.decisions.observed_resources
        )
        held = self.ledger.plan_of(attempt)
        if held and self._stands(held, gang):
            self.ledger.renew_plan(attempt, seconds=self.decisions.plan_hold_seconds)
            return self._response(held)
        self.ledger.drop_plans(call.uid)
        return self._fresh(attempt, gang, call.spec.policy)

    def _stands(self, held: tuple[WorkerClaim, ...], gang: core.Gang) -> bool:
        if any(claim.state is State.WRITTEN for claim in held):
            return True
        obstacles = (self.ledger.books.obstacle(claim.place) for claim in held)
        return len(held) == gang.workers and not any(obstacles)

    def _fresh(
        self, attempt: Attempt, gang: core.Gang, policy: str | None
    ) -> PlanResponse | PlanRefusal:
        placements = core.plan_gang(self.ledger.cluster, gang, self.policies.named(policy))
        if isinstance(placements, core.Refusal):
            return _refusal(placements)
        self.ledger.hold_plan(attempt, placements, seconds=self.decisions.plan_hold_seconds)
        return self._response(self.ledger.plan_of(attempt))

    def _response(self, held: tuple[WorkerClaim, ...]) -> PlanResponse:
        return PlanResponse(
            placement=tuple(
                WorkerPlacement(
                    worker=claim.worker.index,
                    node=claim.placement.node,
                    devices=claims.shares(claim.placement),
                )
                for claim in held
            ),
            expires_seconds=self.decisions.plan_hold_seconds,
        )


def _refusal(refusal: core.Refusal) -> PlanRefusal:
    return PlanRefusal(
        reason=refusal.reason.value,
        message=refusal.message,
        counts={count.reason.value: count.nodes for count in refusal.counts},
        never=refusal.never,
    )
