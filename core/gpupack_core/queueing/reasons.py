# SPDX-License-Identifier: Apache-2.0
"""The reasons for which jobs wait: a type, and a sentence for the owner of the job.

Times in messages are coarse, and amounts are whole where possible, because a message is written
into a status whenever it changes. Jobs of other tenants are not named.
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
    """The reason for which a job waits; conditions carry these names."""

    NEXT = "Next"
    NO_ROOM = "NoRoom"
    ROOM_KEPT = "RoomKept"
    VICTIMS_END = "VictimsEnd"
    BORROWING_LIMIT = "BorrowingLimit"
    QUOTA_USED = "QuotaUsed"
    BEHIND = "Behind"
    UNSATISFIABLE = "Unsatisfiable"
    """It can never start on the cluster, or within the quota, as they are now."""


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What a tenant uses beyond its guaranteed quota: milli-GPU under one key."""

    tenant: Tenant
    milli: float
    key: Key

    @property
    def text(self) -> str:
        """Return the amount in words, such as «8 borrowed H100 GPUs»."""
        return gpus(self.milli, self.key).replace(" ", " borrowed ", 1)


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waits, when it starts, and what would help: the answer that every surface shows.

    `cause`: the reason in words. `lasting_cause`: the reason without times, which is equal for
    equal states. `position` of `waiting`: among all pending jobs and standalone pods of the
    cluster, in the order of admission; 1 is the first. `first`: the job that it waits for.
    `refusal`: why it does not fit. `lacks_room`: whether it lacks nothing but GPUs. `left`: what
    the quota allows its tenant beyond what is used, in milli-GPU of the models that it may use,
    including models that the cluster does not have. `helps`: what would let it start. `borrowed`:
    what other tenants could give back, which not every reader may know.
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
        """Return one sentence that says why the job waits, and when it starts."""
        return _joined(self.cause, said(self.start))

    @property
    def lasting(self) -> str:
        """Return the message without times."""
        return _joined(self.lasting_cause, lasting(self.start))


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def gpus(milli: float, key: Key = ANY) -> str:
    """Return the number of GPUs in words, such as «1.5 H100 GPUs» or «1 GPU»."""
    number = f"{milli / WHOLE_GPU:g}"
    noun = "GPU" if number == "1" else "GPUs"
    return f"{number} {key} {noun}" if key else f"{number} {noun}"


def _are(milli: float, key: Key = ANY) -> str:
    text = gpus(milli, key)
    return f"{text} {'is' if text.endswith('GPU') else 'are'}"


def soon(seconds: float) -> str:
    """Return a time such as «35 min»; it is rounded up, so that it is never too early."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= 2 * length:
            return f"{-int(-seconds // length)} {unit}"
    return f"{-int(-seconds // 10) * 10} s" if seconds > 0 else "0 s"


def name_of(job: Job, *, to: Job) -> str:
    """Return the name of a job in a message for the owner of another job."""
    return job.name or str(job.id) if job.tenant == to.tenant else "a job of another namespace"


def owner(node: TreeNode) -> str:
    """Return the name of a node, such as «namespace team-a», «cohort research», «the cluster»."""
    if node.id == TOP:
        return "the cluster"
    return f"{'namespace' if node.is_tenant else 'cohort'} {node.name}"


def no_room(refusal: str) -> str:
    """Return the cause; `refusal` is that of the plan and says what would help."""
    return f"no room: {refusal}"


def never_fits(refusal: str) -> str:
    """Return the cause; `refusal` is that of the empty cluster, without current numbers."""
    return f"never on this cluster as it is: {refusal}; {NEW_NODES}"


def never_payable(node: TreeNode, *, asked: int, most: float) -> str:
    """Return the cause for a job that its quota would not allow if nothing else ran."""
    return (
        f"it can never start within its quota: {_are(asked)} requested, and {owner(node)} may use "
        f"{gpus(max(most, 0))} of these models at most; {LARGER_QUOTA}"
    )


NEW_NODES: Final = "it needs other nodes, or another request"
LARGER_QUOTA: Final = "it needs a larger quota, or a smaller request"


def room_kept_for(first: str) -> str:
    """Return the lasting cause for a job that would delay a queue head."""
    return f"it would fit, but room is kept for {first}, which waits"


def room_kept(first: str, waited: float, ends_within: float | None) -> str:
    """Return the cause for a job that would delay a queue head."""
    text = f"it would fit, but room is kept for {first}, which has waited for {soon(waited)}"
    if ends_within is None:
        return f"{text}; it starts beside it or after it"
    return f"{text}; a job that ends within {soon(ends_within)} by its deadline can go first"


def victims_end(victims: int, waited: float | None = None) -> str:
    """Return the cause for a preemptor whose victims have not ended.

    `waited` None: the cause without the time.
    """
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
    """Return the cause for a job whose tenant or cohort has reached its borrowing limit."""
    promised, limit = node.promised.get(key, 0), node.limit(key).borrowing or 0
    return (
        f"{owner(node)} uses {gpus(used, key)}, and with a quota of {gpus(promised)} and a "
        f"borrowing limit of {gpus(limit)} may use {gpus(max(left, 0))} more; {_are(asked)} asked "
        f"for; it starts when jobs of {owner(node)} end, or with a higher limit"
    )


def quota_used(node: TreeNode, key: Key, *, used: float, asked: int, left: float) -> str:
    """Return the cause for a job that lacks quota: all is used, or others do not lend it."""
    return (
        f"{_are(max(left, 0), key)} left that {owner(node)} may lend, and {_are(asked)} asked for; "
        f"{_are(used, key)} lent or used already, and the rest is kept by quotas that do not lend "
        "it; it starts when jobs that borrow end, or within a nominal quota of its own"
    )


def behind(first: str, scope: TreeNode) -> str:
    """Return the cause for a job behind the queue head of a strict order."""
    return f"behind {first}, which is first in {owner(scope)}, where the order is strict"
