# SPDX-License-Identifier: Apache-2.0
"""Admitted standalone pods: their places are held until their Binding.

A place is in the pod's annotation from the moment its gate is open. A new leader holds it again,
once and for as long as its predecessor would have: kube-scheduler may have been down.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from gpupack_crds import names
from gpupack_kubeclient import objects
from gpupack_placement import NodeName, Placement, Refusal, decide, policy_named
from gpupack_queue import Tenant
from gpupack_queue.state.reservation import is_free
from gpupack_scheduler.ledger.claims import Allocation, PodClaim, State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.pending import gate
from gpupack_scheduler.queueing.pending.request import GatedPodRequest, waiting_pod
from gpupack_scheduler.queueing.pods.conditions import Eviction, Note
from gpupack_scheduler.requests.mismatch import mismatch
from gpupack_scheduler.requests.pod_groups import MAX_MEMBERS, Membership

NODE_GONE: Final = "NodeDeleted"

MAX_ADMITTED_PODS: Final = 128
"""Maximum of admitted pods that are not bound: kube-scheduler binds one after the other.

A namespace has at most half of what others leave, as queues share a switch's memory by dynamic
thresholds (Choudhury and Hahne, 1998): however many namespaces have pods that cannot be bound, they
do not block another namespace."""

MAX_ADMITTED_MEMBERS: Final = 2 * MAX_MEMBERS
"""Maximum of members of pod groups that are admitted and not bound. They have a limit of their own,
by which a namespace has half of what others leave, too: so the largest group can be admitted while
no other namespace has any."""

SECONDS_PER_MEMBER: Final = 0.1
"""Time for which a place is held longer for each member that is admitted with it."""

SECONDS: Final = 60.0
"""Time for which a place is held; later the pod is placed again when kube-scheduler calls."""

RETRY_SECONDS: Final = 60.0
"""Time that kube-scheduler gets for another try; after a node's change it needs seconds."""

MAX_TRIED: Final = 64
"""Maximum of stranded pods per check for which it is decided whether their node can take them
again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stranded:
    """A stranded pod without a controller that would create it again.

    The node of its admission cannot take it, and its node affinity names only that node. Kubernetes
    permits a narrower affinity, never a wider one.

    Attributes:
        node: the node to which it was admitted.
        node_is_gone: it never starts; else it starts if the node can take it again.
    """

    pod: objects.Pod
    node: str
    node_is_gone: bool

    @property
    def reason(self) -> str:
        """Return the reason for programs."""
        return NODE_GONE if self.node_is_gone else "NodeUnsuitable"

    @property
    def note(self) -> Note:
        """Return the note for the pod's condition and event."""
        return Note(self.pod.metadata, self.reason, self.text)

    @property
    def text(self) -> str:
        """Return the message for the pod's owner: what is wrong, and what to do."""
        fault = "is gone" if self.node_is_gone else "cannot take the pod now"
        return (
            f"node {self.node}, to which the queue let the pod in, {fault}, and its node affinity "
            "names no other node and cannot be changed: delete the pod and create it again"
        )


def hold_seconds(member: Membership | None) -> float:
    """Return how long the place of an admitted pod is held: kube-scheduler binds one by one."""
    return SECONDS if member is None else SECONDS + SECONDS_PER_MEMBER * member.members


class AdmittedPods:
    """The admitted pods that are not bound yet."""

    def __init__(self, ledger: Ledger, observed: Collection[str]) -> None:
        self._ledger, self._observed = ledger, observed
        self._held: dict[str, str] = {}
        """Namespaces by UID of the pod; some pods may be bound by now."""
        self._members: dict[str, str] = {}
        """The same of members of pod groups that were admitted together."""
        self._members_in = Counter[str]()
        """Number of these by namespace."""
        self._held_back: dict[str, int] = {}
        """Members of the last group of a namespace that the limit kept from being admitted."""
        self._known: set[str] = set()
        """UIDs of pods whose place has been held."""
        self._returned_at: dict[str, float] = {}
        """Time since which the node of a pod can take it again, by UID; infinity: it cannot."""

    def may_admit_group(self, namespace: str, members: int) -> bool:
        """Tell whether so many members of a group may be admitted now."""
        may = self._has_space(namespace, members)
        if not may:
            self._held_back[namespace] = members
        return may

    def _may_again(self, namespace: str, members: int) -> bool:
        """Tell whether groups of a namespace are planned again after one was held back.

        While some of its members are not bound, the space is to be enough for several groups: a
        cycle plans many, and those that the limit keeps out are planned in vain.
        """
        several = MAX_ADMITTED_MEMBERS // 8 if self._members_in[namespace] else 0
        return self._has_space(namespace, max(members, several))

    def _has_space(self, namespace: str, members: int) -> bool:
        own = self._members_in[namespace]
        others = len(self._members) - own
        return members <= (MAX_ADMITTED_MEMBERS - others) // 2 - own

    def free_slots(self) -> int:
        """Return how many more pods may be admitted."""
        self._forget_bound()
        return max(MAX_ADMITTED_PODS - len(self._held), 0)

    def full(self) -> set[Tenant]:
        """Return the namespaces that have as many admitted pods as they may have.

        A namespace whose group was held back is among them until the group may be admitted.
        """
        self._forget_bound()
        groups = self._held_back.items()
        self._held_back = {of: number for of, number in groups if not self._may_again(of, number)}
        counts = Counter(self._held.values())
        full = [each for each, number in counts.items() if not self._left(number)]
        return set(map(Tenant, (*full, *self._held_back)))

    def at_once(self) -> int:
        """Return how many pods may be admitted together, whatever their namespaces.

        No namespace exceeds its limit by that number.
        """
        self._forget_bound()
        numbers = {0, *Counter(self._held.values()).values()}
        return min((left for number in numbers if (left := self._left(number))), default=0)

    def _left(self, number: int) -> int:
        """Return how many more pods a namespace with `number` pods may have."""
        others = len(self._held) - number
        return max((MAX_ADMITTED_PODS - others) // 2 - number, 0)

    def admit(
        self, waiting: GatedPodRequest, place: Placement, member: Membership | None = None
    ) -> PodClaim:
        """Hold the place of a pod whose gate is to open; `member`: of a pod group."""
        ask = dataclasses.replace(waiting.ask, member=member)
        claim = self._ledger.assume(ask, place, seconds=hold_seconds(member))
        self._count(claim.uid, claim.namespace, member)
        self._known.add(claim.uid)
        return claim

    def _count(self, uid: str, namespace: str, member: Membership | None) -> None:
        if member is not None and member.members > 1:
            self._members[uid] = namespace
            self._members_in[namespace] += 1
        else:
            self._held[uid] = namespace

    def see(self, pod: objects.Pod) -> None:
        """Hold the place of a pod whose gate is open and that is not bound.

        If kube-scheduler has found that the pod cannot go there, its place is released.
        """
        uid = pod.metadata.uid
        if _is_unschedulable(pod):
            if held := self._ledger.claims.pods.get(uid):
                self._ledger.release(held)
        elif uid not in self._known and uid not in self._ledger.claims.pods:
            self._hold(uid, pod)
        self._known.add(uid)

    def _hold(self, uid: str, pod: objects.Pod) -> None:
        """Hold the place that another leader gave the pod, if it is still free."""
        ask, place = self._ledger.pods.waiting(uid), self._place(pod)
        if ask is None or place is None or mismatch(ask.served(), place):
            return
        free = is_free(self._ledger.cluster.fork(), waiting_pod(ask), (place.placement,))
        if free and not self._ledger.claims.obstacle(place):
            self._ledger.hold(ask, place, seconds=hold_seconds(ask.member))
            self._count(uid, ask.namespace, ask.member)

    def displaced(self) -> Iterator[Eviction]:
        """Yield evictions of pods that may be on one node only, which cannot take them any more.

        kube-scheduler has found that; their controllers create new pods, which wait.
        """
        for pod, _ in self._without_their_node():
            if pod.metadata.owner_references:
                why = "to be placed again: the node of its admission cannot take it any more"
                yield Eviction(pod.metadata.uid, *pod.key, "Displaced", why)

    def stranded(self, now: float) -> Iterator[Stranded]:
        """Yield such pods without a controller that would create them again.

        They get a condition and are not evicted. Once a node can take its pod again, kube-scheduler
        has RETRY_SECONDS to try it. If the ledger never saw an obstacle, kube-scheduler has found
        one that no plan considers.
        """
        self._returned_at = {
            uid: at for uid, at in self._returned_at.items() if uid in self._ledger.pods.let_in
        }
        for number, (pod, node) in enumerate(self._without_their_node()):
            if pod.metadata.owner_references:
                continue
            if number >= MAX_TRIED or not self._returned(pod, node, now):
                yield Stranded(pod, node, node_is_gone=node not in self._ledger.nodes.items)

    def _returned(self, pod: objects.Pod, node: str, now: float) -> bool:
        """Tell whether the pod's node can take it again, since a short time ago."""
        uid = pod.metadata.uid
        if not self._may_take(node, uid):
            self._returned_at[uid] = math.inf
            return False
        if _is_stranded(pod, NODE_GONE):
            self._returned_at.setdefault(uid, math.inf)
        at = self._returned_at.get(uid)
        if at is None:
            return False
        self._returned_at[uid] = at = min(at, now)
        return now - at < RETRY_SECONDS

    def _may_take(self, node: str, uid: str) -> bool:
        """Tell whether the node has a place for the pod now."""
        ask, here = self._ledger.pods.waiting(uid), [NodeName(node)]
        if ask is None or ask.request is None or self._ledger.cluster.row(here[0]) is None:
            return False
        policy = policy_named("first-fit")
        found = decide(self._ledger.cluster, ask.request, policy, candidates=here)
        return not isinstance(found, Refusal)

    def _without_their_node(self) -> Iterator[tuple[objects.Pod, str]]:
        """Yield unschedulable pods that hold no place, with the only node that each may be on."""
        for uid, pod in self._ledger.pods.let_in.items():
            if uid in self._ledger.claims.pods or not _is_unschedulable(pod):
                continue
            place = gate.written_place(pod)
            if place is not None and place.pinned:
                yield pod, place.node

    def is_admitted(self, uid: str) -> bool:
        """Tell whether the pod was admitted, and is not bound as far as is known."""
        return uid in self._known

    def gone(self, uid: str) -> None:
        """Forget a pod that is bound or gone."""
        self._known.discard(uid)

    def _place(self, pod: objects.Pod) -> Allocation | None:
        ask = self._ledger.pods.waiting(pod.metadata.uid)
        if ask is None or ask.request is None:
            return None
        return gate.place_of(pod, ask.request, gate.tickets_of(pod, self._observed))

    def _forget_bound(self) -> None:
        self._held = self._assumed(self._held)
        self._members = self._assumed(self._members)
        self._members_in = Counter(self._members.values())

    def _assumed(self, held: dict[str, str]) -> dict[str, str]:
        return {uid: of for uid, of in held.items() if self._is_assumed(uid)}

    def _is_assumed(self, uid: str) -> bool:
        claim = self._ledger.claims.pods.get(uid)
        return claim is not None and claim.state is State.ASSUMED


def _is_stranded(pod: objects.Pod, reason: str) -> bool:
    """Tell whether the pod's condition says that it is stranded for this reason."""
    conditions = (each for each in pod.status.conditions if each.type == names.STRANDED_CONDITION)
    return any(each.status == "True" and each.reason == reason for each in conditions)


def _is_unschedulable(pod: objects.Pod) -> bool:
    """Tell whether kube-scheduler has tried to place the pod without success."""
    conditions = (each for each in pod.status.conditions if each.type == "PodScheduled")
    return any(each.reason == "Unschedulable" for each in conditions)
