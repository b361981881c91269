# SPDX-License-Identifier: Apache-2.0
"""Maximum run times of standalone pods, by their cohorts.

A pod that has run for longer is evicted within its PodDisruptionBudgets, which may delay its end.
Therefore the queue takes the limit for an estimate of the pod's duration, and not for a deadline:
a job that is backfilled on it is preempted if it delays a queue head. The operator ends GPUJobs.
This module stores nothing, so a restart neither loses time nor adds any.
"""

from collections.abc import Iterator
from typing import Final

from gpupack_crds.gpujob_status import RunLimit
from gpupack_queue import Queue
from gpupack_scheduler.ledger.claims import PodClaim, State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.pending.request import holder_id
from gpupack_scheduler.queueing.pods.conditions import Eviction, few_at_once
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores

REASON: Final = "MaxRunTimeExceeded"


class RunLimitActions:
    """The pods that have run for too long, read from claims and cohorts at each call.

    Args:
        ledger: the claims.
        quotas: GPUQuotas and GPUCohorts, which have the limits.
    """

    def __init__(self, ledger: Ledger, quotas: QuotaStores) -> None:
        self._ledger, self._quotas = ledger, quotas

    def evictions(self, queue: Queue, now: float) -> Iterator[Eviction]:
        """Yield standalone pods that have run for longer than their cohort allows, few at once."""
        return few_at_once(self._all_evictions(queue, now))

    def _all_evictions(self, queue: Queue, now: float) -> Iterator[Eviction]:
        for claim in self._ledger.claims.pods.values() if self._quotas.has_run_limits else ():
            limit = self._exceeded(claim, queue, now)
            if limit is not None:
                yield Eviction(claim.uid, claim.namespace, claim.name, REASON, _why(limit))

    def _exceeded(self, claim: PodClaim, queue: Queue, now: float) -> RunLimit | None:
        if claim.state is not State.BOUND or claim.leaves or claim.begun is None:
            return None
        limit = self._quotas.run_limit(claim.namespace)
        if limit is None or now - claim.begun < limit.seconds:
            return None
        return limit if holder_id(claim) in queue.state.running else None


def _why(limit: RunLimit) -> str:
    return (
        f"since it has run for the {limit.seconds} s that GPUCohort {limit.cohort} allows "
        "(maxRunSeconds)"
    )
