# SPDX-License-Identifier: Apache-2.0
"""Why a job waits: a typed reason, and one sentence for its owner.

Times in texts are coarse, and amounts are whole where they can be: a text is written into a status
whenever it changes. Jobs of other tenants are not named.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from gpupack_core.queueing.charge import ANY, Key
from gpupack_core.queueing.job import Job, JobId, Tenant
from gpupack_core.queueing.start import Start, lasting, said
from gpupack_core.queueing.tree import TOP, TreeNode
from gpupack_core.reasons import Refusal
from gpupack_core.units import WHOLE_GPU

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


class WaitReason(StrEnum):
    """Conditions carry these names."""

    NEXT = "Next"
    NO_ROOM = "NoRoom"
    ROOM_KEPT = "RoomKept"
    VICTIMS_END = "VictimsEnd"
    BORROWING_LIMIT = "BorrowingLimit"
    QUOTA_USED = "QuotaUsed"
    BEHIND = "Behind"
    UNSATISFIABLE = "Unsatisfiable"
    """It can never start on the cluster, or within the quota, as they are."""


@dataclass(frozen=True, slots=True)
class Borrowed:
    """A tenant uses so much beyond its promise; milli-GPU under one key."""

    tenant: Tenant
    milli: float
    key: Key

    @property
    def text(self) -> str:
        """«8 borrowed H100 GPUs»."""
        return gpus(self.milli, self.key).replace(" ", " borrowed ", 1)


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waits, when it starts, and what would help: the answer that every surface shows.

    `cause`: the reason in words; `lasting_cause`: without times, the same for the same state.
    `position` of `waiting`: of all jobs and standalone pods that wait in the cluster, by the order
    in which they are admitted; 1 is the first. `first`: whom it waits for. `refusal`: where room is
    lacking; `lacks_room`: and nothing else. `left`: what its quota allows its tenant beyond what is
    used, in milli-GPU of the models that it may use, of those that the cluster does not have, too.
    `helps`: what would let it start; `borrowed`: what other tenants could give back, which not
    every reader may know.
    """

    reason: WaitReason
    cause: str
    start: Start
    position: int
    waiting: int
    first: JobId | None = None
    refusal: Refusal | None = None
    lasting_cause: str = ""
    left: float = inf
    lacks_room: bool = False
    helps: tuple[str, ...] = ()
    borrowed: tuple[Borrowed, ...] = ()

    @property
    def message(self) -> str:
        """One sentence: why it waits, and when it starts."""
        return _joined(self.cause, said(self.start))

    @property
    def lasting(self) -> str:
        """The same without times."""
        return _joined(self.lasting_cause, lasting(self.start))


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def gpus(milli: float, key: Key = ANY) -> str:
    """«1.5 H100 GPUs», «1 GPU»."""
    number = f"{milli / WHOLE_GPU:g}"
    noun = "GPU" if number == "1" else "GPUs"
    return f"{number} {key} {noun}" if key else f"{number} {noun}"


def _are(milli: float, key: Key = ANY) -> str:
    text = gpus(milli, key)
    return f"{text} {'is' if text.endswith('GPU') else 'are'}"


def soon(seconds: float) -> str:
    """«35 min»; rounded up, so that it is no promise too early."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= 2 * length:
            return f"{-int(-seconds // length)} {unit}"
    return f"{-int(-seconds // 10) * 10} s" if seconds > 0 else "0 s"


def name_of(job: Job, *, to: Job) -> str:
    """How one job is told of another."""
    return job.name or str(job.id) if job.tenant == to.tenant else "a job of another namespace"


def owner(node: TreeNode) -> str:
    """«namespace team-a», «cohort research», «the cluster»."""
    if node.id == TOP:
        return "the cluster"
    return f"{'namespace' if node.is_tenant else 'cohort'} {node.name}"


def no_room(refusal: str) -> str:
    """`refusal`: of the plan, which says what would help."""
    return f"no room: {refusal}"


def never_fits(refusal: str) -> str:
    """`refusal`: of the empty cluster, without figures of now."""
    return f"never on this cluster as it is: {refusal}; {NEW_NODES}"


def never_payable(node: TreeNode, *, asked: int, most: float) -> str:
    """Its quota would not allow it if nothing else ran."""
    return (
        f"it can never start within its quota: {_are(asked)} requested, and {owner(node)} may use "
        f"{gpus(max(most, 0))} of these models at most; {LARGER_QUOTA}"
    )


NEW_NODES: Final = "it needs other nodes, or another request"
LARGER_QUOTA: Final = "it needs a larger quota, or a smaller request"


def room_kept_for(first: str) -> str:
    """It would fit but for another."""
    return f"it would fit, but room is kept for {first}, which waits"


def room_kept(first: str, waited: float, ends_within: float | None) -> str:
    """It would fit but for another."""
    text = f"it would fit, but room is kept for {first}, which has waited for {soon(waited)}"
    if ends_within is None:
        return f"{text}; it starts beside it or after it"
    return f"{text}; a job that ends within {soon(ends_within)} by its deadline can go first"


def victims_end(victims: int, waited: float | None = None) -> str:
    """Others were stopped for it; `waited` None: the same without the time."""
    jobs = "1 job that was" if victims == 1 else f"{victims} jobs that were"
    ago = "" if waited is None else f" {soon(waited)} ago"
    return f"room is made for it: it starts when {jobs} told to end{ago} did so"


NEXT_CYCLE: Final = "it fits, and its turn comes with the next decision"
OWN_PLACES: Final = (
    "its GPUs are reserved for it: it starts there when the pods of its last attempt have ended"
)
HELD_STILL: Final = (
    "its quota allows it when jobs that were told to end, and hold what counts against it, did so"
)


def borrowing_limit(node: TreeNode, key: Key, *, used: float, asked: int, left: float) -> str:
    """The quota allows no more."""
    promised, limit = node.promised.get(key, 0), node.limit(key).borrowing or 0
    return (
        f"{owner(node)} uses {gpus(used, key)}, and with a quota of {gpus(promised)} and a "
        f"borrowing limit of {gpus(limit)} may use {gpus(max(left, 0))} more; {_are(asked)} asked "
        f"for; it starts when jobs of {owner(node)} end, or with a higher limit"
    )


def quota_used(node: TreeNode, key: Key, *, used: float, asked: int, left: float) -> str:
    """What there is is used, or kept by others for themselves."""
    return (
        f"{_are(max(left, 0), key)} left that {owner(node)} may lend, and {_are(asked)} asked for; "
        f"{_are(used, key)} lent or used already, and the rest is kept by quotas that do not lend "
        "it; it starts when jobs that borrow end, or within a nominal quota of its own"
    )


def behind(first: str, scope: TreeNode) -> str:
    """Strict order."""
    return f"behind {first}, which is first in {owner(scope)}, where the order is strict"
