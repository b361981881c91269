# SPDX-License-Identifier: Apache-2.0
"""Standalone pods that have used none of their GPUs for longer than their cohort allows.

GPUNode has the time since which a GPU is idle, as its agent has seen it. It counts for a pod if it
is after the pod's start: an agent may be away while the GPU goes from one pod to the next. A pod
with several GPUs is idle when all of them are, from the time of the last one on. This module stores
nothing, so a restart neither loses time nor adds any.
"""

import dataclasses
import datetime as dt
from collections.abc import Iterator
from typing import Final

from gpupack_crds import names
from gpupack_crds.gpucohort import IdlePods
from gpupack_crds.times import format_seconds
from gpupack_queue import Queue
from gpupack_scheduler.ledger.claims import PodClaim, State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.pending.request import holder_id
from gpupack_scheduler.queueing.pods.conditions import Eviction, Note, few_at_once, name_of
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores

REASON: Final = "GpuIdle"


@dataclasses.dataclass(frozen=True, slots=True)
class IdlePod:
    """An idle pod that must be reported.

    Attributes:
        since: seconds since the epoch.
        rule: the rule of its cohort.
        cohort: name of the cohort with the rule.
        is_reclaimed: whether the pod must be evicted.
    """

    claim: PodClaim
    since: float
    rule: IdlePods
    cohort: str
    is_reclaimed: bool

    @property
    def text(self) -> str:
        """Return the message for the owner; it stays the same while the pod is idle."""
        moment = format_seconds(self.since)
        return (
            f"its GPUs have been idle since {moment}, longer than the {self.rule.after_seconds} s "
            f"that GPUCohort {self.cohort} allows"
        )

    @property
    def note(self) -> Note:
        """Return the note for the pod's condition and event."""
        advice = f"; delete it, or annotate it {names.RECLAIM_ANNOTATION}=true to have that done"
        if self.is_reclaimed:
            advice = "; it is evicted, as its owner wants"
        gpus = len(self.claim.placement.devices)
        return Note(name_of(self.claim), REASON, self.text, advice, gpus=gpus)


class IdlePodActions:
    """The idle pods, read from claims, GPUNodes and cohorts at each call.

    Args:
        ledger: the claims, and the state of GPUs that agents report.
        quotas: GPUQuotas and GPUCohorts, which have the limits.
    """

    def __init__(self, ledger: Ledger, quotas: QuotaStores) -> None:
        self._ledger, self._quotas = ledger, quotas

    def pods(self, queue: Queue, now: float) -> Iterator[IdlePod]:
        """Yield standalone pods that have been idle for too long; workers of GPUJobs are none."""
        if not self._has_rules():
            return
        nodes = self._nodes_with_idle_gpus()
        for claim in self._ledger.claims.pods.values():
            if claim.placement.node in nodes and (pod := self._idle_pod_of(claim, queue, now)):
                yield pod

    def evictions(self, queue: Queue, now: float) -> Iterator[Eviction]:
        """Yield idle pods to evict, by their owner's and their cohort's choice, few at once."""
        return few_at_once(self._all_evictions(queue, now))

    def _all_evictions(self, queue: Queue, now: float) -> Iterator[Eviction]:
        uids = self._ledger.pods.reclaimable if self._has_rules() else ()
        claims = (self._ledger.claims.pods.get(uid) for uid in sorted(uids))
        found = (self._idle_pod_of(claim, queue, now) for claim in claims if claim is not None)
        for pod in found:
            if pod is not None and pod.is_reclaimed:
                claim, why = pod.claim, f"since {pod.text}"
                yield Eviction(claim.uid, claim.namespace, claim.name, REASON, why)

    def _has_rules(self) -> bool:
        return any(each.spec.idle_pods for each in self._quotas.cohorts.items.values())

    def _nodes_with_idle_gpus(self) -> set[str]:
        return {
            name
            for name, node in self._ledger.gpus.items.items()
            if any(device.idle_since for device in node.status.devices)
        }

    def _idle_pod_of(self, claim: PodClaim, queue: Queue, now: float) -> IdlePod | None:
        """Return the idle pod of a claim; None: no standalone pod, or not idle for too long."""
        if claim.state is not State.BOUND or claim.leaves:
            return None
        since, found = self._idle_since(claim), self._rule(claim.namespace)
        if since is None or found is None or holder_id(claim) not in queue.state.running:
            return None
        cohort, rule = found
        if now - since <= rule.after_seconds:
            return None
        opted_in = claim.uid in self._ledger.pods.reclaimable
        is_reclaimed = rule.reclaim == "OptedIn" and opted_in
        return IdlePod(claim, since, rule, cohort, is_reclaimed)

    def _rule(self, namespace: str) -> tuple[str, IdlePods] | None:
        return self._quotas.rule_for(namespace, lambda cohort: cohort.idle_pods)

    def _idle_since(self, claim: PodClaim) -> float | None:
        """Return since when all GPUs of a claim are idle; None: one is in use, or it is unknown."""
        node = self._ledger.gpus.items.get(claim.placement.node)
        held = {str(grant.uuid) for grant in claim.placement.devices}
        if node is None or not held or claim.begun is None:
            return None
        devices = [each for each in node.status.devices if each.uuid in held]
        idle_since = {each.uuid: each.idle_since for each in devices}
        moments = [_moment(since) for since in idle_since.values()]
        if len(moments) < len(held) or None in moments:
            return None
        latest = max(moment for moment in moments if moment is not None)
        earliest = min(moment for moment in moments if moment is not None)
        return latest if earliest >= claim.begun else None


def _moment(written: str | None) -> float | None:
    """Convert a time into seconds since the epoch; None if it is absent or invalid."""
    try:
        return dt.datetime.fromisoformat(written).timestamp() if written else None
    except (ValueError, OverflowError):
        return None
