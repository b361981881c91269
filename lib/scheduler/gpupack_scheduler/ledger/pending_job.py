# SPDX-License-Identifier: Apache-2.0
"""GPUJobs with the fields that show a read-only queue whether and for what they wait.

The operator calls the leading extender with the pod that admission makes of a worker. The operator
also writes the parts that decide about places into the status (`plannedPod`), so the job itself
shows them. A job without such a call yet has only its template.
"""

import datetime as dt
from typing import Final

import msgspec

from gpupack_crds import broken
from gpupack_crds.broken import Break
from gpupack_kubeclient import objects
from gpupack_placement import NodeName, Reason
from gpupack_queue import WaitReason
from gpupack_scheduler.ledger.placed_job import (
    UNREADABLE_RULES,
    PlacedAttempt,
    PlacedJob,
    PlacedJobSpec,
    PlacedJobStatus,
)

MAX_RULES_BYTES: Final = 16 << 10
"""Maximum size of the rules about nodes that are kept of a job that may not move, as JSON. All
pending jobs are in memory, of every namespace."""

QUEUED_REASONS: Final = frozenset({*WaitReason, *Reason})
"""Reasons that the leading extender gives."""

NOT_PENDING_REASONS: Final = frozenset(
    {
        "CreationForbidden",
        "DryRunLimitExceeded",
        "InvalidTemplate",
        "PlanDenied",
        "PriorityClassMissing",
        "PriorityClassPreempts",
    }
)
"""The operator's reasons for which a job that has not begun is not submitted to the queue."""


class PendingSpec(PlacedJobSpec, frozen=True):
    """The spec, with the job's priority."""

    priority: int = 0
    priority_class_name: str | None = None


class PendingFault(objects.View, frozen=True):
    """The place where an attempt first broke."""

    node: str = ""


class PendingAttempt(PlacedAttempt, frozen=True):
    """An attempt, with the reason of its end and the place where it broke."""

    reason: str = ""
    fault: PendingFault | None = None


class PendingStatus(PlacedJobStatus, frozen=True):
    """The status, with the reason why the job waits."""

    reason: str = ""
    attempts: tuple[PendingAttempt, ...] = ()

    def to_avoid(self, now: dt.datetime, seconds: float) -> frozenset[NodeName]:
        """Return the nodes on which attempts broke within the last `seconds`."""
        breaks = (
            Break(each.fault.node, each.reason, each.finished_at)
            for each in self.attempts
            if each.fault is not None and each.finished_at is not None
        )
        return frozenset(map(NodeName, broken.to_avoid(breaks, now, seconds)))


class PendingJob(PlacedJob, frozen=True):
    """A GPUJob as far as a read-only queue reads it."""

    spec: PendingSpec = PendingSpec()
    status: PendingStatus = PendingStatus()

    def __post_init__(self) -> None:
        """Drop rules about nodes larger than MAX_RULES_BYTES, unless the job may move."""
        super().__post_init__()
        planned = self.planned
        if not self.may_move and len(planned.rules) > MAX_RULES_BYTES:
            msgspec.structs.force_setattr(planned, "rules", UNREADABLE_RULES)

    @property
    def keeps_rules(self) -> bool:
        """Tell whether the job's rules about nodes are kept."""
        return super().keeps_rules or self.waits

    @property
    def waits(self) -> bool:
        """Tell whether the job is in the queue, or is about to be."""
        status = self.status
        if not self.may_wait or status.phase != "Pending":
            return False
        is_new = not status.attempt and status.reason not in NOT_PENDING_REASONS
        return is_new or status.reason in QUEUED_REASONS
