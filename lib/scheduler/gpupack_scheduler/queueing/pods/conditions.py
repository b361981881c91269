# SPDX-License-Identifier: Apache-2.0
"""What happens to standalone pods because of their GPUs: conditions in their statuses, evictions.

Conditions say that GPUs are idle for too long, that one failed, or that the node is gone.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from gpupack_crds import names
from gpupack_kubeclient import objects
from gpupack_scheduler.ledger.claims import PodClaim
from gpupack_scheduler.ledger.ledger import Ledger

LOOK_SECONDS: Final = 5.0
MAX_EVICTIONS: Final = 20
"""Maximum of simultaneous evictions of one namespace, whose budgets may delay them; others follow
when these pods have gone."""


@dataclasses.dataclass(frozen=True, slots=True)
class EndedCondition:
    """Reason and text of a condition that is no longer true."""

    reason: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ReportedPod:
    """A pod whose status says that a condition is true.

    Attributes:
        pod: name, namespace and UID.
        over: reason and text once the condition is no longer true.
        reason: reason in the condition; empty: this condition has only one.
    """

    pod: objects.ObjectMeta
    over: EndedCondition
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A kind of condition.

    Attributes:
        condition: its type.
        called: function that returns the pods whose status has it, by UID.
        look_seconds: interval between two checks.
    """

    condition: str
    called: Callable[[Ledger], Mapping[str, ReportedPod]]
    look_seconds: float = LOOK_SECONDS


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """A pod for which a condition is true.

    Attributes:
        pod: name, namespace and UID.
        reason: reason for programs, in condition and event.
        text: message for the owner; it stays the same while nothing changes.
        advice: what follows, or what the owner can do; for the event only.
        gpus: number of GPUs that the pod holds.
    """

    pod: objects.ObjectMeta
    reason: str
    text: str
    advice: str = ""
    gpus: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that must end; `reason` and `why` (after «evicted») are for its owner."""

    uid: str
    namespace: str
    name: str
    reason: str
    why: str


def few_at_once(evictions: Iterable[Eviction]) -> Iterator[Eviction]:
    """Yield the first evictions of each namespace, at most MAX_EVICTIONS."""
    counts = Counter[str]()
    for each in evictions:
        if counts[each.namespace] < MAX_EVICTIONS:
            counts[each.namespace] += 1
            yield each


def name_of(claim: PodClaim) -> objects.ObjectMeta:
    """Return name, namespace and UID of the pod of a claim."""
    return objects.ObjectMeta(name=claim.name, namespace=claim.namespace, uid=claim.uid)


def _bound(ledger: Ledger, uids: Iterable[str], over: EndedCondition) -> Iterator[ReportedPod]:
    claims = ledger.claims.pods
    return (ReportedPod(name_of(claims[uid]), over) for uid in sorted(uids) if uid in claims)


def _by_uid(called: Iterable[ReportedPod]) -> dict[str, ReportedPod]:
    return {each.pod.uid: each for each in called}


_IN_USE: Final = EndedCondition("GpuInUse", "its GPUs were used again, or it is not known any more")
_WORKS: Final = EndedCondition("GpuWorks", "its GPUs work again")
_TAKEN: Final = EndedCondition("Bound", "the node took the pod")
_RETURNED: Final = EndedCondition("NodeReturned", "the node is there again and can take the pod")


def _stranded(ledger: Ledger) -> dict[str, ReportedPod]:
    waiting = (
        ReportedPod(pod.metadata, _RETURNED, condition.reason)
        for pod in ledger.pods.let_in.values()
        for condition in pod.status.conditions
        if condition.type == names.STRANDED_CONDITION and condition.status == "True"
    )
    return _by_uid([*_bound(ledger, ledger.pods.called_stranded, _TAKEN), *waiting])


IDLE: Final = Kind(
    names.IDLE_CONDITION,
    called=lambda ledger: _by_uid(_bound(ledger, ledger.pods.called_idle, _IN_USE)),
)
FAILED: Final = Kind(
    names.FAILED_CONDITION,
    called=lambda ledger: _by_uid(_bound(ledger, ledger.pods.called_failed, _WORKS)),
    look_seconds=1.0,
)
STRANDED: Final = Kind(names.STRANDED_CONDITION, called=_stranded, look_seconds=2.0)
