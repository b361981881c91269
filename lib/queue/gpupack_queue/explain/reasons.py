# SPDX-License-Identifier: Apache-2.0
"""The reasons for which jobs wait: a type, and a sentence for the owner of the job.

Times in messages are coarse, and amounts are whole where possible, because a message is written
into a status whenever it changes. Jobs of other tenants are not named.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.reasons import Refusal
from gpupack_queue.charge import ANY, ModelKey
from gpupack_queue.job import Job, JobId, Tenant
from gpupack_queue.pending.model_fallback import PermittedModels
from gpupack_queue.quotas.tree import TOP, TreeNode
from gpupack_queue.start import (
    Never,
    Start,
    Unsatisfied,
    format_time,
    lasting_start_text,
    start_text,
)
from gpupack_queue.window import Window

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


class WaitReason(StrEnum):
    """The reason for which a job waits; conditions carry these names."""

    ADMISSION_PENDING = "AdmissionPending"
    DOES_NOT_FIT = "DoesNotFit"
    RESERVED = "Reserved"
    RESERVED_FOR_WINDOW = "ReservedForWindow"
    """GPUs that it would hold are reserved for a time window, now or soon."""
    PREEMPTION_PENDING = "PreemptionPending"
    BORROWING_LIMIT_EXCEEDED = "BorrowingLimitExceeded"
    QUOTA_EXCEEDED = "QuotaExceeded"
    BLOCKED_BY_QUEUE_HEAD = "BlockedByQueueHead"
    UNSATISFIABLE = "Unsatisfiable"
    """It can never start on the cluster, or within the quota, as they are now."""


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What a tenant uses beyond its guaranteed quota: milli-GPU under one key."""

    tenant: Tenant
    milli: float
    key: ModelKey

    @property
    def text(self) -> str:
        """Return the amount in words, such as «8 borrowed H100 GPUs»."""
        return gpus_text(self.milli, self.key).replace(" ", " borrowed ", 1)


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waits, when it starts, and what would help: the answer that every surface shows.

    `cause`: the reason in words. `cause_without_times`: the reason without times, which is equal
    for equal states. `position` of `pending`: among all pending jobs and standalone pods of the
    cluster, in the order of admission; 1 is the first. `blocked_by`: the job that it waits for.
    `refusal`: why it does not fit. `lacks_only_gpus`: whether it lacks nothing else. `left`: what
    the quota allows its tenant beyond what is used, in milli-GPU of the models that it may use,
    including models that the cluster does not have. `remedies`: what would let it start.
    `borrowed`: what other tenants could give back, which not every reader may know. `models`: the
    models that it may use now, if they are in order of preference. `passed_by_user`: a later job of
    its tenant goes first, because its user uses less.
    """

    reason: WaitReason
    cause: str
    start: Start
    position: int
    pending: int
    blocked_by: JobId | None = None
    refusal: Refusal | None = None
    cause_without_times: str = ""
    left: float = inf
    lacks_only_gpus: bool = False
    remedies: tuple[str, ...] = ()
    borrowed: tuple[Borrowed, ...] = ()
    models: PermittedModels | None = None
    passed_by_user: bool = False

    @property
    def message(self) -> str:
        """Return one sentence that says why the job waits, and when it starts."""
        models = models_text(self.models, with_time=True)
        return _joined(self.cause, start_text(self.start), models, self._users)

    @property
    def message_without_times(self) -> str:
        """Return the message without times."""
        models = models_text(self.models, with_time=False)
        start = lasting_start_text(self.start)
        return _joined(self.cause_without_times, start, models, self._users)

    @property
    def _users(self) -> str:
        return PASSED_BY_USER if self.passed_by_user else ""


PASSED_BY_USER: Final = (
    "later jobs go first, because their users use fewer GPUs of the namespace (jobOrder)"
)


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def models_text(permitted: PermittedModels | None, *, with_time: bool) -> str:
    """Return which models a job may use; empty: all of them, or it has no order of models."""
    if permitted is None:
        return ""
    parts = []
    if permitted.following:
        begins = f"from {format_time(permitted.next_at)}" if with_time else "later"
        now = " or ".join(permitted.models)
        parts.append(f"it may use {now} now, and {' or '.join(permitted.following)} {begins}")
    if 0 < len(permitted.skipped) < len(permitted.models):
        skipped = " or ".join(permitted.skipped)
        parts.append(f"it does not wait for {skipped}, on which it can never start")
    return "; ".join(parts)


def gpus_text(milli: float, key: ModelKey = ANY) -> str:
    """Return the number of GPUs in words, such as «1.5 H100 GPUs» or «1 GPU»."""
    number = f"{milli / WHOLE_GPU:g}"
    noun = "GPU" if number == "1" else "GPUs"
    return f"{number} {key} {noun}" if key else f"{number} {noun}"


def duration_text(seconds: float) -> str:
    """Return a time such as «35 min»; it is rounded down: so long it has been, or may be."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    whole = max(int(seconds), 0)
    return f"{whole // 10 * 10 or whole} s"


def name_of(job: Job, *, to: Job) -> str:
    """Return the name of a job in a message for the owner of another job."""
    return job.name or str(job.id) if job.tenant == to.tenant else "a job of another namespace"


def node_text(node: TreeNode) -> str:
    """Return the name of a node, such as «namespace team-a», «cohort research», «the cluster»."""
    if node.id == TOP:
        return "the cluster"
    return f"{'namespace' if node.is_tenant else 'cohort'} {node.name}"


def does_not_fit(refusal: str) -> str:
    """Return the cause; `refusal` is that of the plan and says what would help."""
    return f"does not fit: {refusal}"


def never_fits(refusal: str) -> str:
    """Return the cause; `refusal` is that of the empty cluster, without current numbers."""
    return f"can never start on these nodes: {refusal}; {Never(Unsatisfied.NODES).needs}"


def exceeds_quota(node: TreeNode, *, requested: int, maximum: float) -> str:
    """Return the cause for a job that its quota would not allow if nothing else ran."""
    return (
        f"can never start within its quota: {gpus_text(requested)} requested, {node_text(node)} "
        f"may use at most {gpus_text(max(maximum, 0))} of these models; "
        f"{Never(Unsatisfied.QUOTA).needs}"
    )


def fits_no_permitted_model(node: TreeNode) -> str:
    """Return the cause for a job that fits only on models of which its quota permits too few."""
    return (
        f"can never start within its quota: {node_text(node)} may use GPUs only of models that it "
        f"does not fit on; {Never(Unsatisfied.QUOTA).needs}"
    )


def blocked_by_reservation_of(head: str) -> str:
    """Return the cause, without times, for a job that would delay a queue head."""
    return f"blocked by the reservation of {head}"


def blocked_by_reservation(head: str, waited: float, ends_within: float | None) -> str:
    """Return the cause for a job that would delay a queue head."""
    text = f"blocked by the reservation of {head}, which has waited for {duration_text(waited)}"
    if ends_within is None:
        return f"{text}; starts on other GPUs or after that job"
    limit = duration_text(ends_within)
    return f"{text}; a job that ends within {limit} by its deadline can be backfilled"


def reservation_name(window: Window, *, to: Job) -> str:
    """Return the name of a time-window reservation in a message for the owner of a job."""
    if window.tenant != to.tenant:
        return "a time-window reservation of another namespace"
    return f"time-window reservation {window.reservation.partition('/')[2]}"


def reserved_for(reservation: str) -> str:
    """Return the cause, without times, for a job that a window leaves too few GPUs."""
    return f"GPUs are reserved for {reservation}"


def reserved_from(reservation: str, start: float) -> str:
    """Return the cause for a job that would delay a window that has not begun."""
    return (
        f"{reserved_for(reservation)} from {format_time(start)}; a job that is preemptible, or "
        "ends before by its deadline, can use them until then"
    )


def reserved_until(reservation: str, end: float) -> str:
    """Return the cause for a job that lacks the GPUs of an active window."""
    return f"{reserved_for(reservation)} until {format_time(end)}"


def preempting(victims: int, waited: float | None = None) -> str:
    """Return the cause for a preemptor whose victims have not ended.

    `waited` None: the cause without the time.
    """
    jobs, end = ("1 job", "it has") if victims == 1 else (f"{victims} jobs", "they have")
    since = "" if waited is None else f" ({duration_text(waited)} so far)"
    return f"preempting {jobs}{since}; starts when {end} terminated"


NEXT_CYCLE: Final = "will be admitted in the next scheduling cycle"
RESTARTING_IN_PLACE: Final = (
    "restarting on the same GPUs; starts when the pods of its last attempt have terminated"
)
WAITING_FOR_QUOTA: Final = "waiting for preempted jobs to release quota"


def borrowing_limit_reached(
    node: TreeNode, key: ModelKey, *, used: float, requested: int, left: float
) -> str:
    """Return the cause for a job whose tenant or cohort has reached its borrowing limit."""
    guaranteed, limit = node.guaranteed.get(key, 0), node.limit(key).borrowing or 0
    owner = node_text(node)
    return (
        f"borrowing limit of {owner} reached: {gpus_text(requested)} requested, "
        f"{gpus_text(max(left, 0), key)} left ({gpus_text(used)} in use, quota "
        f"{gpus_text(guaranteed)}, borrowing limit {gpus_text(limit)}); starts when jobs of "
        f"{owner} end, or with a higher limit"
    )


def insufficient_quota(
    node: TreeNode, key: ModelKey, *, used: float, requested: int, left: float
) -> str:
    """Return the cause for a job that lacks quota: all is used, or others do not lend it."""
    return (
        f"insufficient quota: {gpus_text(requested)} requested, {gpus_text(max(left, 0), key)} "
        f"left to borrow from {node_text(node)} ({gpus_text(used)} in use, the rest not lendable); "
        "starts when jobs that borrow end, or with a larger nominal quota"
    )


def blocked_by_head(head: str, scope: TreeNode) -> str:
    """Return the cause for a job behind the queue head of a strict order."""
    return f"blocked by {head}, the queue head of {node_text(scope)} (strict order)"
