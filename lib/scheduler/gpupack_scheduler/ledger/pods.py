# SPDX-License-Identifier: Apache-2.0
"""Pods from the watch: which are bound where, which wait, which are gone.

Every pod of the cluster counts, with GPUs or not: the others take CPU and memory. A pod's devices
are those of its annotation, whichever scheduler it had: the only unsafe reading would be to count a
device as free that the annotation names. GPUs that it requests beyond those are device tokens of
the kubelet that another scheduler's Binding used.

Standalone pods that wait behind the queue's gate, or that the queue has admitted, are kept for the
queue to read; `changes` lists each.

A pod can be finished while the kubelet still shows running containers: another component gave up
its node, or the kubelet itself evicts the pod and has not ended it. Its GPUs stay held until the
agent has had the time to list it as lingering.
"""

import dataclasses
import datetime as dt
import logging
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from gpupack_crds import devices, names
from gpupack_crds.errors import DevicesAnnotationInvalid
from gpupack_crds.job_times import checkpointed_at
from gpupack_kubeclient import objects
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.arrivals import Arrivals
from gpupack_scheduler.ledger.claim_table import ClaimTable
from gpupack_scheduler.ledger.claims import Allocation, PodClaim, State
from gpupack_scheduler.ledger.gated_pod import bounded, is_gated
from gpupack_scheduler.requests import pod_request, pod_resources
from gpupack_scheduler.requests.needs import NO_NEEDS, Needs
from gpupack_scheduler.requests.pod_request import PodRequest

log = logging.getLogger(__name__)

FINISHED_HOLD_SECONDS: Final = 15.0
"""Hold on a finished pod: its agent lists it after 5 s if it runs; the rest is for the report."""


class Pods:
    """A reflector's store of pods."""

    def __init__(
        self,
        table: ClaimTable,
        arrivals: Arrivals,
        observed_resources: Collection[str],
        *,
        max_priority: int,
        clock: Callable[[], float],
        listed: Callable[[], None],
    ) -> None:
        self._claims, self._arrivals, self._clock = table, arrivals, clock
        self._observed, self._max_priority = observed_resources, max_priority
        self._listed = listed
        self.gated: dict[str, objects.Pod] = {}
        """Pods that only the queue's gate keeps from their scheduler, by UID."""
        self.reclaimable: set[str] = set()
        """UIDs of bound pods whose owners permit eviction when their GPUs are idle for long. They
        are no part of a claim: otherwise repeated annotations of a pod would wake the queue for
        nothing."""
        self.called_idle: set[str] = set()
        """UIDs of bound pods whose condition says that their GPUs are idle."""
        self.called_failed: set[str] = set()
        """UIDs of bound pods whose condition says that a GPU failed."""
        self.held_by_others: set[str] = set()
        """UIDs of pods that were seen with other gates, too, since this process started."""
        self.called_stranded: set[str] = set()
        """UIDs of bound pods whose condition says that their only node cannot take them, which it
        did."""
        self.let_in: dict[str, objects.Pod] = {}
        """Pods that a queue has admitted and that are not bound yet, by UID."""
        self._waiting: dict[str, PodRequest] = {}
        self._seen_at: dict[str, float] = {}
        self._gone: set[str] = set()
        """UIDs of pods that a read found gone, until the watch shows it."""

    def waiting(self, uid: str) -> PodRequest | None:
        """Return the request of a pod that is not bound yet."""
        return self._waiting.get(uid)

    def seen_at(self, uid: str) -> float | None:
        """Return when a pod that requests GPUs and is not bound was first seen; ledger's clock."""
        return self._seen_at.get(uid)

    def is_gone(self, uid: str) -> None:
        """Record that a read found no such pod: what the watch still shows is older."""
        self._gone.add(uid)

    def upsert(self, pod: objects.Pod) -> None:
        """Add or update a pod."""
        if pod.metadata.uid in self._gone:
            return
        if pod.finished:
            self._forget(pod.metadata.uid)
            if pod.status.shows_running:
                self._hold_finished(pod.metadata.uid)
            else:
                self._claims.drop_pod(pod.metadata.uid)
            return
        ask = pod_request.of_watch(pod, self._observed, max_priority=self._max_priority)
        if ask.asks_gpus:
            self._arrivals.seen(ask)
        if pod.spec.node_name:
            self._waiting.pop(pod.metadata.uid, None)
            self._seen_at.pop(pod.metadata.uid, None)
            self._leave_gate(pod.metadata.uid)
            self._see_bound(pod, ask)
            self._see_notes(pod)
        elif ask.asks_gpus:
            self._waiting[ask.uid] = ask
            self._seen_at.setdefault(ask.uid, self._clock())
            if ask.worker is None:
                self._see_gate(pod)
            else:
                self._leave_gate(ask.uid)
            self._drop_assumption_if_deleting(pod)

    def remove(self, pod: objects.Pod) -> None:
        """Remove a pod."""
        self._gone.discard(pod.metadata.uid)
        self._forget(pod.metadata.uid)
        self._free(pod.metadata.uid)

    def replace(self, pods: list[objects.Pod]) -> None:
        """Replace all pods by these.

        Only a pod that the watch once showed as bound can be missing from the list: a pod that was
        just assumed or bound here may be younger than the list.
        """
        listed = {pod.metadata.uid for pod in pods}
        self._gone &= listed
        shown = {State.BOUND, State.FINISHED}
        bound = {uid for uid, claim in self._claims.pods.items() if claim.state in shown}
        for uid in sorted(bound - listed):
            self._free(uid)
        self._waiting.clear()
        for uid in (self.gated.keys() | self.let_in.keys()) - listed:
            self._leave_gate(uid)
        self._seen_at = {uid: at for uid, at in self._seen_at.items() if uid in listed}
        self._arrivals.only(listed)
        self.held_by_others &= listed
        self.reclaimable &= listed
        self.called_idle &= listed
        self.called_failed &= listed
        self.called_stranded &= listed
        for pod in pods:
            self.upsert(pod)
        self._listed()

    def _forget(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._seen_at.pop(uid, None)
        self._leave_gate(uid)
        self._arrivals.gone(uid)
        self.held_by_others.discard(uid)
        self.reclaimable.discard(uid)
        self.called_idle.discard(uid)
        self.called_failed.discard(uid)
        self.called_stranded.discard(uid)

    def see_gates(self) -> None:
        """Add all pending and admitted pods to the changes, for their reader."""
        for uid in (*self.gated, *self.let_in):
            self._claims.changes.gate(uid)

    def _see_gate(self, pod: objects.Pod) -> None:
        """Sort the pod into those that wait for the queue, those it admitted, or neither."""
        uid = pod.metadata.uid
        if any(gate.name != names.QUEUE_GATE for gate in pod.spec.scheduling_gates):
            self.held_by_others.add(uid)
        if pod.metadata.deletion_timestamp is not None:
            self._leave_gate(uid)
        elif is_gated(pod.spec):
            self.gated[uid] = bounded(pod)
            self._claims.changes.gate(uid)
        elif (
            not pod.spec.scheduling_gates and names.PLACEMENT_ANNOTATION in pod.metadata.annotations
        ):
            self.gated.pop(uid, None)
            self.let_in[uid] = pod
            self._claims.changes.gate(uid)
        else:
            self._leave_gate(uid)

    def _leave_gate(self, uid: str) -> None:
        if self.gated.pop(uid, None) or self.let_in.pop(uid, None):
            self._claims.changes.gate(uid)

    def _free(self, uid: str) -> None:
        """Release what a pod held that is no longer in the API.

        A pod that was deleted by force is gone from the API before its containers are. Where the
        agent reports that they still run, `lingering` takes over the pod's GPUs.
        """
        claim = self._claims.pods.get(uid)
        if claim is None or claim.state is not State.FINISHED:
            self._claims.drop_pod(uid)

    def _hold_finished(self, uid: str) -> None:
        """Hold the GPUs of a finished pod whose containers may still run."""
        claim = self._claims.pods.get(uid)
        if claim and claim.state is not State.FINISHED:
            deadline = self._clock() + FINISHED_HOLD_SECONDS
            held = dataclasses.replace(claim, state=State.FINISHED, deadline=deadline)
            self._claims.put_pod(held)

    def _see_bound(self, pod: objects.Pod, ask: PodRequest) -> None:
        held = self._devices(pod)
        allocation = Allocation(
            claims.placement(pod.spec.node_name, held, needs=self._needs(pod)),
            self._tickets(pod, held) if ask.asks_gpus else {},
        )
        claim = PodClaim.of(
            ask,
            allocation,
            State.BOUND,
            begun=_moment(pod.status.start_time),
            checkpointed=_moment(checkpointed_at(pod.metadata.annotations)),
            leaves=pod.metadata.deletion_timestamp is not None,
        )
        if self._claims.pods.get(claim.uid) != claim:
            self._claims.put_pod(claim)
            name = f"pod {claim.namespace}/{claim.name}"
            self._claims.report_overbooked(claim.placement, of=name)

    def _see_notes(self, pod: objects.Pod) -> None:
        uid, conditions = pod.metadata.uid, pod.status.conditions
        wanted = pod.metadata.annotations.get(names.RECLAIM_ANNOTATION) == "true"
        true = {condition.type for condition in conditions if condition.status == "True"}
        for is_so, uids in (
            (wanted, self.reclaimable),
            (names.IDLE_CONDITION in true, self.called_idle),
            (names.FAILED_CONDITION in true, self.called_failed),
            (names.STRANDED_CONDITION in true, self.called_stranded),
        ):
            uids.add(uid) if is_so else uids.discard(uid)

    def _devices(self, pod: objects.Pod) -> tuple[devices.DeviceShare, ...]:
        try:
            return _annotated(pod)
        except DevicesAnnotationInvalid as error:
            self._complain(pod, f"holds no device: {error}")
            return ()

    def _tickets(self, pod: objects.Pod, held: tuple[devices.DeviceShare, ...]) -> dict[str, int]:
        """Return what the kubelet counts for the pod beyond the devices of its annotation."""
        try:
            counted = pod_resources.device_tokens(pod.spec, self._observed)
        except RequestInvalid as error:
            self._complain(pod, f"is counted without GPUs: {error}")
            return {}
        # A pod requests one resource; slices in an annotation have the requested profile.
        whole = next((name for name in counted if names.mig_profile(name)), names.GPU)
        named = Counter(whole if share.whole else names.GPU_SHARE for share in held)
        beyond = {name: number - named[name] for name, number in counted.items()}
        unnamed = {name: number for name, number in beyond.items() if number > 0}
        for name in dict.fromkeys((names.GPU, names.GPU_SHARE, whole)):
            if name in unnamed:
                text = "which its annotation does not name: gpupack did not bind it"
                self._complain(pod, f"holds {unnamed[name]} of the kubelet's {name}, {text}")
        return unnamed

    def _needs(self, pod: objects.Pod) -> Needs:
        try:
            return pod_resources.held(pod, self._observed).bounded()
        except RequestInvalid as error:
            self._complain(pod, f"is counted without CPU and memory: {error}")
            return NO_NEEDS

    def _complain(self, pod: objects.Pod, text: str) -> None:
        """Log an error once per pod: each status write of its kubelet causes a call."""
        if pod.metadata.uid not in self._claims.pods:
            log.error("pod %s/%s %s", *pod.key, text)

    def _drop_assumption_if_deleting(self, pod: objects.Pod) -> None:
        claim = self._claims.pods.get(pod.metadata.uid)
        if claim and claim.state is State.ASSUMED and pod.metadata.deletion_timestamp:
            self._claims.drop_pod(claim.uid)


def _moment(written: dt.datetime | None) -> float | None:
    """Return seconds since the epoch."""
    return None if written is None else written.timestamp()


def _annotated(pod: objects.Pod) -> tuple[devices.DeviceShare, ...]:
    annotation = pod.metadata.annotations.get(names.DEVICES_ANNOTATION)
    return () if annotation is None else devices.decode_devices(annotation)
