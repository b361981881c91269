# SPDX-License-Identifier: Apache-2.0
"""Members of pod groups behind the queue's gate, and which of them wait in the queue.

    too few members exist                   none waits in the queue
    the minimum exists, none runs           the first members wait as one gang; later ones for it
    fewer run than the minimum              those that are missing wait as one gang, and join
    the minimum runs                        each further member waits as a single pod, and joins

Everything is read from the pods: the gate and the label of those that wait, the places of the
others. So a new leader finds each group as its predecessor left it. If that opened only some gates
of an admission, the rest completes the admission before other jobs get its GPUs.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from gpupack_crds.gpujob_status import RunLimit
from gpupack_kubeclient import objects
from gpupack_placement import Gang, Request, Role
from gpupack_placement.request import WORKER
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.ledger.claims import State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.pending import gate
from gpupack_scheduler.queueing.pending.request import GatedPodRequest, PodGroupRequest
from gpupack_scheduler.requests.pod_groups import (
    MAX_MEMBERS,
    Age,
    GangKey,
    GroupKey,
    GroupLabel,
    Membership,
    age,
    age_of,
)

MAX_GROUPS: Final = 1_000
"""Maximum of groups of one namespace with members behind the gate."""

MAX_ROLES: Final = 16
"""Maximum of different requests of the members that start together."""


class PodGroupReason(StrEnum):
    """Why a member of a pod group is not in the queue."""

    WAITING_FOR_MEMBERS = "WaitingForMembers"
    NOT_STARTED = "PodGroupNotStarted"
    INVALID = "InvalidPodGroup"
    TOO_MANY = "TooManyPodGroups"
    QUEUE_FULL = "QueueFull"


class GroupWait(NamedTuple):
    """Why a member of a pod group is not in the queue: a reason for programs, and a sentence."""

    reason: PodGroupReason
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """What of a group waits in the queue.

    Attributes:
        gang: members that start together; None: there are none, or too few.
        singles: members that join the running gang one by one.
    """

    gang: PodGroupRequest | None = None
    singles: tuple[GatedPodRequest, ...] = ()


class _Member(NamedTuple):
    """A member behind the gate.

    `request` None: `refusal` says why it cannot be served.
    """

    pod: objects.Pod
    label: GroupLabel
    request: GatedPodRequest | None
    refusal: str
    age: Age


class RunningPart(NamedTuple):
    """The running gang of a group.

    `members`: by UID, with a place or at least an open gate, and not being deleted. `at`: time of
    its last admission. `unfinished`: admissions of which not all gates were opened.
    """

    gang: GangKey
    members: Mapping[str, Membership]
    at: int
    unfinished: tuple[Membership, ...]


class _Refused(Exception):
    """A group whose members contradict one another."""


class PodGroups:
    """The members of pod groups that one ledger shows.

    Args:
        ledger: places of members.
        observed: observed resources.
        max_priority: maximum priority of a pod in the queue.
    """

    def __init__(self, ledger: Ledger, observed: Collection[str], *, max_priority: int) -> None:
        self._ledger, self._observed, self._max_priority = ledger, observed, max_priority
        self._gated: dict[GroupKey, dict[str, _Member]] = {}
        self._group_of: dict[str, GroupKey] = {}
        """Groups of the pods in `_gated`, by UID."""
        self._groups_in: dict[str, set[GroupKey]] = defaultdict(set)
        """Groups in `_gated` by namespace."""
        self._let_in: dict[GroupKey, dict[GangKey, dict[str, Membership]]] = {}
        """Members with an open gate that are not bound, by group, gang and UID."""
        self._gang_of: dict[str, GangKey] = {}
        """Gangs of the pods in `_let_in`, by UID."""
        self._outside: dict[str, GroupWait] = {}
        """Members that are not in the queue, by UID, and why."""
        self._unfinished: dict[GroupKey, RunningPart] = {}
        """Gangs whose last admission is not complete, while the rest of it waits."""
        self._partial_since: dict[GroupKey, float] = {}
        """Times at which these were first found by this process."""
        self._complete: dict[GroupKey, dict[GangKey, set[Membership]]] = {}
        """Admissions of running gangs of which all gates have been seen open, by group."""
        self._full: dict[str, set[GroupKey]] = defaultdict(set)
        """Groups for which the queue had no space, by namespace."""
        self._ending: frozenset[GangKey] = frozenset()
        """Gangs that are victims of a preemption."""
        self._changed: set[GroupKey] = set()

    def see(self, pod: objects.Pod, label: GroupLabel, limit: RunLimit | None) -> None:
        """Add or update a member behind the gate."""
        uid, key = pod.metadata.uid, label.key
        if self._group_of.get(uid, key) != key:
            self.leave(uid)
        if obstacle := self._obstacle(uid, key):
            self._outside[uid] = obstacle
            return
        self._outside.pop(uid, None)
        request, refusal = None, ""
        try:
            request = gate.ask_of(pod, self._observed, max_priority=self._max_priority, limit=limit)
        except RequestInvalid as error:
            refusal = str(error)
        self._gated.setdefault(key, {})[uid] = _Member(
            pod, label, request, refusal, age(pod.metadata)
        )
        self._group_of[uid] = key
        self._groups_in[key.namespace].add(key)
        self._changed.add(key)

    def leave(self, uid: str) -> None:
        """Remove a pod that is not behind the gate any more."""
        self._outside.pop(uid, None)
        key = self._group_of.pop(uid, None)
        if key is None:
            return
        members = self._gated[key]
        was_full = len(members) >= MAX_MEMBERS
        del members[uid]
        self._changed.add(key)
        if not members:
            self._forget(key)
        if was_full or not members:
            self._retry_outside(key.namespace)

    def see_let_in(self, pod: objects.Pod, member: Membership | None) -> None:
        """Add a member whose gate is open, and that is not bound as far as is known."""
        uid = pod.metadata.uid
        if member is None or uid in self._gang_of:
            return
        group = GroupKey(pod.metadata.namespace, member.source, member.name)
        gang = GangKey(group, member.gang)
        self._let_in.setdefault(group, {}).setdefault(gang, {})[uid] = member
        self._gang_of[uid] = gang
        self._changed.add(group)

    def leave_let_in(self, uid: str) -> None:
        """Remove a member that is bound or gone."""
        gang = self._gang_of.pop(uid, None)
        if gang is not None:
            of_group = self._let_in[gang.group]
            del of_group[gang][uid]
            if not of_group[gang]:
                del of_group[gang]
            if not of_group:
                del self._let_in[gang.group]
            self._changed.add(gang.group)

    def see_changed(self, groups: Collection[GroupKey]) -> None:
        """Look again at groups of which a running member has changed."""
        self._changed.update(groups)

    def see_ending(self, gangs: Collection[GangKey]) -> None:
        """Record which gangs are being preempted: these take no members any more."""
        found = frozenset(gangs)
        self._changed.update(gang.group for gang in found ^ self._ending)
        self._ending = found

    def see_full(self, ask: PodGroupRequest | GatedPodRequest, obstacle: str) -> None:
        """Record that the queue has no space for a request."""
        wait = GroupWait(PodGroupReason.QUEUE_FULL, obstacle)
        members = ask.members if isinstance(ask, PodGroupRequest) else (ask,)
        for each in members:
            self._outside[each.ask.uid] = wait
            self._full[each.namespace].add(self._group_of[each.ask.uid])

    def retry_full(self, namespace: str) -> None:
        """Look again at groups of a namespace for which the queue had no space."""
        self._changed.update(self._full.pop(namespace, ()))

    def retry_all_full(self) -> None:
        """Look again at all groups for which the queue had no space."""
        for namespace in tuple(self._full):
            self.retry_full(namespace)

    def take_changed(self) -> list[GroupKey]:
        """Return the groups that must be looked at, in order, and forget them."""
        changed, self._changed = sorted(self._changed), set()
        return changed

    def obstacle(self, uid: str) -> GroupWait | None:
        """Return why a member is not in the queue; None: it is, or it is no member."""
        return self._outside.get(uid)

    def group_of(self, uid: str) -> GroupKey | None:
        """Return the group of a pod behind the gate."""
        return self._group_of.get(uid)

    def waiting(self, key: GroupKey, now: float) -> Waiting:
        """Return what of a group is to wait in the queue, and record why the others are outside."""
        found = self._waiting(key)
        if key in self._unfinished:
            self._partial_since.setdefault(key, now)
        else:
            self._partial_since.pop(key, None)
        return found

    def parts(self) -> Iterator[tuple[RunningPart, float]]:
        """Yield gangs of which the rest of an admission still waits, and since when it is known."""
        for key, part in self._unfinished.items():
            yield part, self._partial_since[key]

    def _waiting(self, key: GroupKey) -> Waiting:
        claims = self._ledger.claims.pods
        gated = {u: each for u, each in self._gated.get(key, {}).items() if u not in claims}
        self._unfinished.pop(key, None)
        for uid in gated:
            self._outside.pop(uid, None)
        live = self._live(key)
        if not gated:
            return Waiting()
        members = sorted(gated.values(), key=lambda each: each.age)
        try:
            return self._divide(key, members, live)
        except _Refused as error:
            return self._all_outside(
                members, PodGroupReason.INVALID, f"pod group {key.name}: {error}"
            )

    def _obstacle(self, uid: str, key: GroupKey) -> GroupWait | None:
        known = self._gated.get(key)
        if known is not None and uid not in known and len(known) >= MAX_MEMBERS:
            text = f"pod group {key.name} has {MAX_MEMBERS} other members that wait"
            return GroupWait(PodGroupReason.TOO_MANY, text)
        if known is None and len(self._groups_in.get(key.namespace, ())) >= MAX_GROUPS:
            text = f"{MAX_GROUPS} other pod groups of its namespace wait"
            return GroupWait(PodGroupReason.TOO_MANY, text)
        return None

    def _retry_outside(self, namespace: str) -> None:
        """Look again at one pod that was one too many."""
        for uid, wait in self._outside.items():
            pod = self._ledger.pods.gated.get(uid)
            is_there = pod is not None and pod.metadata.namespace == namespace
            if wait.reason is PodGroupReason.TOO_MANY and is_there:
                self._ledger.changes.gate(uid)
                return

    def _forget(self, key: GroupKey) -> None:
        del self._gated[key]
        self._groups_in[key.namespace].discard(key)
        if not self._groups_in[key.namespace]:
            del self._groups_in[key.namespace]
        self._unfinished.pop(key, None)
        self._partial_since.pop(key, None)

    def _live(self, key: GroupKey) -> RunningPart | None:
        """Return the running gang of a group; of several, the one that was admitted last."""
        gangs: dict[GangKey, dict[str, Membership]] = defaultdict(dict)
        is_open: dict[GangKey, Counter[Membership]] = defaultdict(Counter)
        table = self._ledger.claims
        for gang in table.gangs_of(key):
            for claim in table.members_of(gang):
                if claim.member and not claim.leaves and claim.state is not State.FINISHED:
                    gangs[gang][claim.uid] = claim.member
                    is_shown = claim.state is not State.ASSUMED and claim.uid not in self._gang_of
                    is_open[gang][claim.member] += is_shown
        for gang, let_in in self._let_in.get(key, {}).items():
            gangs[gang] |= let_in
            is_open[gang].update(let_in.values())
        known = self._complete.pop(key, {})
        if gangs:
            self._complete[key] = {gang: known.get(gang, set()) for gang in gangs}
        found = [
            self._running(gang, members, is_open[gang])
            for gang, members in gangs.items()
            if gang not in self._ending
        ]
        return max(found, key=lambda live: (live.at, live.gang), default=None)

    def _running(
        self, gang: GangKey, members: Mapping[str, Membership], is_open: Counter[Membership]
    ) -> RunningPart:
        """Return a running gang; `is_open`: members with an open gate, by their admission."""
        complete = self._complete[gang.group][gang]
        complete.update(each for each, number in is_open.items() if number >= each.members)
        unfinished = tuple(each for each in is_open if each not in complete)
        return RunningPart(gang, members, max(each.at for each in members.values()), unfinished)

    def _divide(self, key: GroupKey, members: list[_Member], live: RunningPart | None) -> Waiting:
        """Return what waits in the queue.

        Raises:
            _Refused: the members contradict one another.
        """
        minimum, running = _minimum(members), len(live.members) if live else 0
        missing = max(minimum - running, 0)
        if not missing:
            return Waiting(singles=self._singles(members, live))
        if len(members) < missing:
            text = (
                f"waits for members of pod group {key.name}: {len(members) + running} of {minimum} "
                "exist"
            )
            return self._all_outside(members, PodGroupReason.WAITING_FOR_MEMBERS, text)
        first, later = members[:missing], members[missing:]
        requests = tuple(map(_request, first))
        _require_alike(requests)
        ordered, gang = _gang(requests)
        submitted = min(each.ask.created for each in requests)
        if live is not None:
            claims = [c for u in live.members if (c := self._ledger.claims.pods.get(u))]
            submitted = min([submitted, *(claim.created for claim in claims)])
            rests = (age_of(each.last_created, each.last_name) for each in live.unfinished)
            if any(members[0].age <= rest for rest in rests):
                self._unfinished[key] = live
        self._all_outside(
            later,
            PodGroupReason.NOT_STARTED,
            f"waits until {minimum} members of pod group {key.name} have started",
        )
        request = PodGroupRequest(
            waits_as=self._new_gang(key, ordered[0]),
            joins=live.gang if live else None,
            members=ordered,
            gang=gang,
            submitted=submitted,
            completes=key in self._unfinished,
        )
        return Waiting(gang=request)

    def _singles(
        self, members: list[_Member], live: RunningPart | None
    ) -> tuple[GatedPodRequest, ...]:
        priorities = {
            claim.priority
            for uid in (live.members if live else ())
            if (claim := self._ledger.claims.pods.get(uid))
        }
        found = []
        for each in members:
            try:
                request = _request(each)
                _require_priority(request, priorities)
            except _Refused as error:
                name = each.label.key.name
                self._all_outside([each], PodGroupReason.INVALID, f"pod group {name}: {error}")
            else:
                joins = live.gang if live else None
                found.append(dataclasses.replace(request, joins=joins))
        return tuple(found)

    def _new_gang(self, key: GroupKey, first: GatedPodRequest) -> GangKey:
        """Return a gang that no running member names: that of a first member, as a rule."""
        gang, running = GangKey(key, first.ask.uid), self._ledger.claims.gangs_of(key)
        while gang in running or gang in self._let_in.get(key, {}):
            gang = GangKey(key, f"{gang.gang}.")
        return gang

    def _all_outside(self, members: list[_Member], reason: PodGroupReason, text: str) -> Waiting:
        wait = GroupWait(reason, text)
        self._outside.update({each.pod.metadata.uid: wait for each in members})
        return Waiting()


_OTHER_PRIORITY: Final = (
    "its members have different priorities; give all of them the same priorityClassName"
)


def _minimum(members: list[_Member]) -> int:
    labels = [each.label for each in members]
    for each in members:
        if each.label.problem:
            raise _Refused(f"of pod {each.pod.metadata.name}, {each.label.problem}")
    found = {label.minimum for label in labels if label.minimum is not None}
    if len(found) != 1:
        numbers = ", ".join(map(str, sorted(found)))
        raise _Refused(f"its members name different minimums ({numbers}); write the same in all")
    return found.pop()


def _request(member: _Member) -> GatedPodRequest:
    if member.request is None:
        raise _Refused(f"pod {member.pod.metadata.name} cannot be queued: {member.refusal}")
    return member.request


def _require_priority(request: GatedPodRequest, of_running: Collection[int]) -> None:
    if of_running and request.ask.priority not in of_running:
        raise _Refused(_OTHER_PRIORITY)


def _require_alike(requests: tuple[GatedPodRequest, ...]) -> None:
    if len({each.ask.priority for each in requests}) > 1:
        raise _Refused(_OTHER_PRIORITY)
    if len({each.ask.reservation for each in requests}) > 1:
        raise _Refused("its members name different reservations; name the same in all")


def _gang(requests: tuple[GatedPodRequest, ...]) -> tuple[tuple[GatedPodRequest, ...], Gang]:
    """Return the members by worker index, and their requests: a role for equal ones."""
    roles: dict[Request, list[GatedPodRequest]] = defaultdict(list)
    for each in requests:
        roles[each.ask.served()].append(each)
    if len(roles) > MAX_ROLES:
        raise _Refused(
            f"its members request {len(roles)} different things; at most {MAX_ROLES} start together"
        )
    is_one = len(roles) == 1
    gang = Gang(
        tuple(
            Role(WORKER if is_one else of_role[0].ask.name, len(of_role), request)
            for request, of_role in roles.items()
        )
    )
    return tuple(each for of_role in roles.values() for each in of_role), gang
