# SPDX-License-Identifier: Apache-2.0
"""GPUJobs with what tells an onlooker whether they wait in the queue, and for what.

Whoever decides is asked by the operator, with the pod that admission makes of a worker. The
operator writes the parts that decide about places into the status (`plannedPod`), so the job itself
says as much; a job that has not been asked for yet has its template alone.
"""

import datetime as dt
from typing import Final

import msgspec

import gpupack_core as core
from gpupack_core.queueing import WaitReason
from gpupack_crds import broken
from gpupack_crds.broken import Break
from gpupack_kube import objects
from gpupack_scheduling.ledger.placed_job import (
    UNREADABLE_RULES,
    PlacedAttempt,
    PlacedJob,
    PlacedJobSpec,
    PlacedJobStatus,
)

MAX_RULES_BYTES: Final = 16 << 10
"""Of what is kept of a job's words about nodes: all that wait are in memory, whosever they are."""

STANDS_IN_QUEUE: Final = frozenset({*WaitReason, *core.Reason})
"""Reasons that whoever decides gives."""

DOES_NOT_ASK: Final = frozenset(
    {
        "CreationForbidden",
        "DryRunsLimited",
        "InvalidTemplate",
        "PlanDenied",
        "PriorityClassMissing",
        "PriorityClassPreempts",
    }
)
"""The operator's reasons why a job that has not begun is not asked for."""


class AskingSpec(PlacedJobSpec, frozen=True):
    """And how urgent it is."""

    priority: int = 0
    priority_class_name: str | None = None


class AskingFault(objects.View, frozen=True):
    """Where an attempt broke first."""

    node: str = ""


class AskingAttempt(PlacedAttempt, frozen=True):
    """And why it ended, and where it broke."""

    reason: str = ""
    fault: AskingFault | None = None


class AskingStatus(PlacedJobStatus, frozen=True):
    """And why it waits."""

    reason: str = ""
    attempts: tuple[AskingAttempt, ...] = ()

    def to_avoid(self, now: dt.datetime, seconds: float) -> frozenset[core.NodeName]:
        """Nodes on which attempts broke within the last so many seconds."""
        breaks = (
            Break(each.fault.node, each.reason, each.finished_at)
            for each in self.attempts
            if each.fault is not None and each.finished_at is not None
        )
        return frozenset(map(core.NodeName, broken.to_avoid(breaks, now, seconds)))


class AskingJob(PlacedJob, frozen=True):
    """A GPUJob."""

    spec: AskingSpec = AskingSpec()
    status: AskingStatus = AskingStatus()

    def __post_init__(self) -> None:
        """Of one that waits it is kept where it may run, unless it has too much to say of that."""
        super().__post_init__()
        planned = self.planned
        if not self.may_move and len(planned.rules) > MAX_RULES_BYTES:
            msgspec.structs.force_setattr(planned, "rules", UNREADABLE_RULES)

    @property
    def keeps_rules(self) -> bool:
        """Whether it is kept on which nodes it may run."""
        return super().keeps_rules or self.waits

    @property
    def waits(self) -> bool:
        """Whether it is asked for, or is about to be."""
        status = self.status
        if not self.may_wait or status.phase != "Pending":
            return False
        is_new = not status.attempt and status.reason not in DOES_NOT_ASK
        return is_new or status.reason in STANDS_IN_QUEUE
