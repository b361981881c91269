# SPDX-License-Identifier: Apache-2.0
"""Pods as the watch shows them: who is bound where, who waits, who is gone.

Every pod of the cluster counts, ours or not: the others take CPU and memory. A pod's devices are
those of its annotation, whoever its scheduler was: to count a device as free that the annotation
names would be the only unsafe reading. GPUs that it asks for beyond those are tickets of the
kubelet's that somebody else's binding spent.

Pods of their own that wait behind the queue's gate, or that it has let in, are kept for the queue
to look at; `changes` tells it of each.

A finished pod whose containers the kubelet still shows running was called so by somebody else: by
who gave its node up, or by the kubelet itself, which evicts it and has not ended it. Its GPUs stay
held until the agent has had the time to list it as lingering.
"""

import dataclasses
import datetime as dt
import logging
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from gpupack_crds import devices, names
from gpupack_crds.errors import DevicesAnnotationInvalid
from gpupack_kube import objects
from gpupack_scheduling.asks import pod_ask, pod_resources
from gpupack_scheduling.asks.needs import NO_NEEDS, Needs
from gpupack_scheduling.asks.pod_ask import PodAsk
from gpupack_scheduling.errors import AskInvalid
from gpupack_scheduling.ledger import claims
from gpupack_scheduling.ledger.arrivals import Arrivals
from gpupack_scheduling.ledger.claim_table import ClaimTable
from gpupack_scheduling.ledger.claims import Allocation, PodClaim, State
from gpupack_scheduling.ledger.gated_pod import bounded, is_gated
from gpupack_scheduling.ledger.workers import worker_of

log = logging.getLogger(__name__)

FINISHED_HOLD_SECONDS: Final = 15.0
"""Its agent lists a finished pod that still runs after 5 s; the rest is for that to come here."""


class Pods:
    """A reflector's store."""

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
        """By UID, those that nothing but the queue's gate keeps from their scheduler."""
        self.reclaimable: set[str] = set()
        """UIDs of bound pods whose owners have them evicted where their GPUs are idle for long. No
        part of a claim: whoever annotates a pod again and again makes the queue look at nothing."""
        self.called_idle: set[str] = set()
        """UIDs of bound pods whose condition says that their GPUs are."""
        self.called_failed: set[str] = set()
        """The same of their condition that a GPU failed."""
        self.held_by_others: set[str] = set()
        """UIDs of pods that were shown behind gates of others, too, since this process began."""
        self.called_stranded: set[str] = set()
        """The same of their condition that their only node cannot take them: it could."""
        self.let_in: dict[str, objects.Pod] = {}
        """By UID, those that a queue has let in and that are not bound yet."""
        self._waiting: dict[str, PodAsk] = {}
        self._seen_at: dict[str, float] = {}
        self._gone: set[str] = set()
        """UIDs of those whose end a read has told, until the watch shows it."""

    def waiting(self, uid: str) -> PodAsk | None:
        """What a pod asks for that is not bound yet."""
        return self._waiting.get(uid)

    def seen_at(self, uid: str) -> float | None:
        """When a pod that asks for GPUs and is not bound was first shown, ledger's clock."""
        return self._seen_at.get(uid)

    def is_gone(self, uid: str) -> None:
        """A read has told that there is no such pod: what the watch still shows is of before."""
        self._gone.add(uid)

    def upsert(self, pod: objects.Pod) -> None:
        """A pod appeared or changed."""
        if pod.metadata.uid in self._gone:
            return
        if pod.finished:
            self._forget(pod.metadata.uid)
            if pod.status.shows_running:
                self._see_given_up(pod.metadata.uid)
            else:
                self._claims.drop_pod(pod.metadata.uid)
            return
        ask = None
        if pod_ask.asks_for_gpus(pod.spec, self._observed):
            ask = pod_ask.of_watch(pod, self._observed, max_priority=self._max_priority)
            self._arrivals.seen(ask)
        if pod.spec.node_name:
            self._waiting.pop(pod.metadata.uid, None)
            self._seen_at.pop(pod.metadata.uid, None)
            self._leave_gate(pod.metadata.uid)
            self._see_bound(pod)
            self._see_notes(pod)
        elif ask:
            self._waiting[ask.uid] = ask
            self._seen_at.setdefault(ask.uid, self._clock())
            if ask.worker is None:
                self._see_gate(pod)
            else:
                self._leave_gate(ask.uid)
            self._drop_assumption_if_deleting(pod)

    def remove(self, pod: objects.Pod) -> None:
        """A pod is gone."""
        self._gone.discard(pod.metadata.uid)
        self._forget(pod.metadata.uid)
        self._free(pod.metadata.uid)

    def replace(self, pods: list[objects.Pod]) -> None:
        """These are all pods.

        Only what the watch once showed bound can be missed in a list: a pod that was just
        assumed or bound by us may be younger than the list is.
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
        """Whoever follows the changes is told of all pods that wait, and of those let in."""
        for uid in (*self.gated, *self.let_in):
            self._claims.changes.gate(uid)

    def _see_gate(self, pod: objects.Pod) -> None:
        """It waits for the queue, was let in by one, or does neither."""
        uid = pod.metadata.uid
        if any(gate.name != names.QUEUE_GATE for gate in pod.spec.scheduling_gates):
            self.held_by_others.add(uid)
        if pod.metadata.deletion_timestamp is not None:
            self._leave_gate(uid)
        elif is_gated(pod.spec):
            self.gated[uid] = bounded(pod)
            self._claims.changes.gate(uid)
        elif not pod.spec.scheduling_gates and names.PLACE_ANNOTATION in pod.metadata.annotations:
            self.gated.pop(uid, None)
            self.let_in[uid] = pod
            self._claims.changes.gate(uid)
        else:
            self._leave_gate(uid)

    def _leave_gate(self, uid: str) -> None:
        if self.gated.pop(uid, None) or self.let_in.pop(uid, None):
            self._claims.changes.gate(uid)

    def _free(self, uid: str) -> None:
        """What a pod held that the API does not know any more.

        A force-deleted pod is gone from the API before its containers are: where the agent says
        that they still run, `lingering` takes the pod's GPUs over.
        """
        claim = self._claims.pods.get(uid)
        if claim is None or claim.state is not State.FINISHED:
            self._claims.drop_pod(uid)

    def _see_given_up(self, uid: str) -> None:
        """A pod is called finished while its containers may run."""
        claim = self._claims.pods.get(uid)
        if claim and claim.state is not State.FINISHED:
            deadline = self._clock() + FINISHED_HOLD_SECONDS
            held = dataclasses.replace(claim, state=State.FINISHED, deadline=deadline)
            self._claims.put_pod(held)

    def _see_bound(self, pod: objects.Pod) -> None:
        held = self._devices(pod)
        claim = PodClaim(
            uid=pod.metadata.uid,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            allocation=Allocation(
                claims.placement(pod.spec.node_name, held, needs=self._needs(pod)),
                self._tickets(pod, held),
            ),
            state=State.BOUND,
            worker=worker_of(pod),
            priority=pod_ask.queue_priority(pod.spec, self._max_priority),
            created=_moment(pod.metadata.creation_timestamp) or 0.0,
            begun=_moment(pod.status.start_time),
            leaves=pod.metadata.deletion_timestamp is not None,
        )
        if self._claims.pods.get(claim.uid) != claim:
            self._claims.put_pod(claim)
            name = f"pod {claim.namespace}/{claim.name}"
            self._claims.report_overbooked(claim.placement, of=name)

    def _see_notes(self, pod: objects.Pod) -> None:
        uid, told = pod.metadata.uid, pod.status.conditions
        wanted = pod.metadata.annotations.get(names.RECLAIM_ANNOTATION) == "true"
        true = {condition.type for condition in told if condition.status == "True"}
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
        """What the kubelet counts for the pod beyond the devices of its annotation."""
        if not pod_ask.asks_for_gpus(pod.spec, self._observed):
            return {}
        try:
            counted = pod_resources.tickets(pod.spec, self._observed)
        except AskInvalid as error:
            self._complain(pod, f"is counted without GPUs: {error}")
            return {}
        # A pod asks for one resource; what an annotation names of slices is of the profile asked.
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
        except AskInvalid as error:
            self._complain(pod, f"is counted without CPU and memory: {error}")
            return NO_NEEDS

    def _complain(self, pod: objects.Pod, text: str) -> None:
        """Once for a pod: each of its kubelet's status writes comes by here."""
        if pod.metadata.uid not in self._claims.pods:
            log.error("pod %s/%s %s", *pod.key, text)

    def _drop_assumption_if_deleting(self, pod: objects.Pod) -> None:
        claim = self._claims.pods.get(pod.metadata.uid)
        if claim and claim.state is State.ASSUMED and pod.metadata.deletion_timestamp:
            self._claims.drop_pod(claim.uid)


def _moment(written: dt.datetime | None) -> float | None:
    """Seconds since the epoch."""
    return None if written is None else written.timestamp()


def _annotated(pod: objects.Pod) -> tuple[devices.DeviceShare, ...]:
    annotation = pod.metadata.annotations.get(names.DEVICES_ANNOTATION)
    return () if annotation is None else devices.decode_devices(annotation)
