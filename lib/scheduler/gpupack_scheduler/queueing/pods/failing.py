# SPDX-License-Identifier: Apache-2.0
"""Holders of failed GPUs, as agents report the failures.

The operator ends workers of GPUJobs, and they start again elsewhere: a gang whose GPU is gone hangs
as often as it fails. A standalone pod gets an event and a condition, and is evicted if its cohort
says so. This module stores nothing: the GPUNode has the failure.
"""

from collections.abc import Iterator
from typing import Final

from gpupack_crds.plan import Drained
from gpupack_placement import NodeName
from gpupack_queue import Queue, RunningJob, node_to_drain
from gpupack_scheduler.ledger.claims import PodClaim, State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.pending.request import holder_id, is_attempt
from gpupack_scheduler.queueing.pods.conditions import Eviction, Note, name_of
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.queueing.running.holders import has_ended

REASON: Final = "GpuFailed"


class FailedNodeActions:
    """The holders of failed GPUs, read from GPUNodes, claims and cohorts at each call.

    Failures are rare, so this is cheap.

    Args:
        ledger: the claims, and the failed GPUs.
        quotas: GPUCohorts, which have the rule for standalone pods.
    """

    def __init__(self, ledger: Ledger, quotas: QuotaStores) -> None:
        self._ledger, self._quotas = ledger, quotas

    def attempts(self, queue: Queue) -> Iterator[Drained]:
        """Yield attempts that must end and have not been ended yet."""
        failed = {node: frozenset(of) for node, of in self._ledger.failed.items()}
        for running in queue.state.running if failed else ():
            node = node_to_drain(running.placements, failed)
            if node is None or not is_attempt(running.job.id):
                continue
            if not has_ended(self._ledger, running.job.id):
                why = self._why(running, node)
                yield Drained(attempt=running.job.id, node=node, cause=why, failed=True)

    def notes(self, queue: Queue) -> Iterator[Note]:
        """Yield standalone pods that hold a failed GPU."""
        for claim, text in self._pods(queue):
            evicts = self._evicts(claim.namespace)
            advice = "; it is evicted" if evicts else "; delete it to have it placed again"
            yield Note(name_of(claim), REASON, text, advice, gpus=len(claim.placement.devices))

    def evictions(self, queue: Queue) -> Iterator[Eviction]:
        """Yield standalone pods that hold a failed GPU and whose cohort evicts them."""
        for claim, text in self._pods(queue):
            if self._evicts(claim.namespace):
                yield Eviction(claim.uid, claim.namespace, claim.name, REASON, f"since {text}")

    def _pods(self, queue: Queue) -> Iterator[tuple[PodClaim, str]]:
        failed = self._ledger.failed
        for claim in self._ledger.claims.pods.values() if failed else ():
            causes = failed.get(claim.placement.node)
            if not causes or claim.state is not State.BOUND or claim.leaves:
                continue
            held = [grant.uuid for grant in claim.placement.devices if grant.uuid in causes]
            if held and holder_id(claim) in queue.state.running:
                yield claim, f"its GPU {held[0]} failed: {causes[held[0]]}"

    def _evicts(self, namespace: str) -> bool:
        found = self._quotas.rule_for(namespace, lambda cohort: cohort.failed_gpu_pods)
        return found is not None and found[1] == "Evict"

    def _why(self, running: RunningJob, node: NodeName) -> str:
        causes = self._ledger.failed[node]
        grants = (grant for place in running.placements for grant in place.devices)
        uuid = next(grant.uuid for grant in grants if grant.uuid in causes)
        return f"{uuid}: {causes[uuid]}"
