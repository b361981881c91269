# SPDX-License-Identifier: Apache-2.0
"""plan: places for all workers of an attempt, or none.

Asking again for the same attempt gives the same places while they are held and can be used. A
plan that cannot be used any more is dropped and made anew, unless it is written already: what
stands in a GPUJob's status is the operator's to change.
"""

import dataclasses

import gpupack_core as core
from gpupack_crds.placement import WorkerPlacement, by_node
from gpupack_crds.plan import PlanRefusal, PlanRequest, PlanResponse
from gpupack_extender import gang_ask
from gpupack_extender.ledger import claims
from gpupack_extender.ledger.claims import State, WorkerClaim
from gpupack_extender.ledger.ledger import Ledger
from gpupack_extender.ledger.workers import AttemptKey
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
        attempt = AttemptKey(
            namespace=call.namespace, job=call.name, job_uid=call.uid, number=call.attempt
        )
        gang = gang_ask.gang(call.spec, call.pod_spec, self.decisions.observed_resources)
        held = self.ledger.plan_of(attempt)
        if held and self._stands(held, gang):
            seconds, version = self.decisions.plan_hold_seconds, call.resource_version
            self.ledger.renew_plan(attempt, seconds=seconds, version=version)
            return self._response(held)
        self.ledger.drop_plans(call.uid)
        return self._fresh(attempt, gang, call)

    def _stands(self, held: tuple[WorkerClaim, ...], gang: core.Gang) -> bool:
        if any(claim.state is State.WRITTEN for claim in held):
            return True
        obstacles = (self.ledger.claims.obstacle(claim.allocation) for claim in held)
        return len(held) == gang.workers and not any(obstacles)

    def _fresh(
        self, attempt: AttemptKey, gang: core.Gang, call: PlanRequest
    ) -> PlanResponse | PlanRefusal:
        policy = self.policies.named(call.spec.policy)
        placements = core.plan_gang(self.ledger.cluster, gang, policy)
        if isinstance(placements, core.Refusal):
            return _refusal(placements)
        seconds, version = self.decisions.plan_hold_seconds, call.resource_version
        self.ledger.hold_plan(attempt, placements, seconds=seconds, version=version)
        return self._response(self.ledger.plan_of(attempt))

    def _response(self, held: tuple[WorkerClaim, ...]) -> PlanResponse:
        return PlanResponse(
            placement=by_node(
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
        fits_vacated=refusal.fits_vacated,
    )
