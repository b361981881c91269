# SPDX-License-Identifier: Apache-2.0
"""Who holds GPUs that failed, as agents report them.

Workers of GPUJobs are ended by the operator and start again elsewhere: a gang whose GPU is gone
hangs as often as it fails. Pods of their own are told, by an event and a condition, and evicted
where their cohort wants that. Nothing is written down here: the GPUNode says it.
"""

from collections.abc import Iterator
from typing import Final

import gpupack_core as core
from gpupack_core.queueing import Queue, Running, node_to_leave
from gpupack_crds.plan import Drained
from gpupack_scheduling.ledger.claims import PodClaim, State
from gpupack_scheduling.ledger.ledger import Ledger
from gpupack_scheduling.queueing.ask import is_attempt, pod_id
from gpupack_scheduling.queueing.conditions import Note, name_of
from gpupack_scheduling.queueing.ended import has_ended
from gpupack_scheduling.queueing.eviction import Eviction
from gpupack_scheduling.queueing.quotas import QuotaStores

REASON: Final = "GpuFailed"


class Failing:
    """Reads GPUNodes, claims and cohorts anew each time: seldom does a GPU fail.

    Args:
        ledger: who holds what, and which GPUs failed.
        quotas: GPUCohorts, which say what becomes of pods of their own.
    """

    def __init__(self, ledger: Ledger, quotas: QuotaStores) -> None:
        self._ledger, self._quotas = ledger, quotas

    def attempts(self, queue: Queue) -> Iterator[Drained]:
        """Those that are to end and have not been ended yet."""
        failed = {node: frozenset(of) for node, of in self._ledger.failed.items()}
        for running in queue.state.running if failed else ():
            node = node_to_leave(running.placements, failed)
            if node is None or not is_attempt(running.job.id):
                continue
            if not has_ended(self._ledger, running.job.id):
                why = self._why(running, node)
                yield Drained(attempt=running.job.id, node=node, why=why, failed=True)

    def notes(self, queue: Queue) -> Iterator[Note]:
        """Pods of their own that hold one."""
        for claim, text in self._pods(queue):
            evicts = self._evicts(claim.namespace)
            advice = "; it is evicted" if evicts else "; delete it to have it placed anew"
            yield Note(name_of(claim), REASON, text, advice, gpus=len(claim.placement.devices))

    def evictions(self, queue: Queue) -> Iterator[Eviction]:
        """Those whose cohort wants it."""
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
            if held and pod_id(claim.uid) in queue.state.running:
                yield claim, f"its GPU {held[0]} failed: {causes[held[0]]}"

    def _evicts(self, namespace: str) -> bool:
        found = self._quotas.rule_for(namespace, lambda cohort: cohort.failed_gpu_pods)
        return found is not None and found[1] == "Evict"

    def _why(self, running: Running, node: core.NodeName) -> str:
        causes = self._ledger.failed[node]
        grants = (grant for place in running.placements for grant in place.devices)
        uuid = next(grant.uuid for grant in grants if grant.uuid in causes)
        return f"{uuid}: {causes[uuid]}"
