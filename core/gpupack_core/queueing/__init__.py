# SPDX-License-Identifier: Apache-2.0
"""The queue: quotas, fair shares, backfill and preemption over one cluster.

    Job, Quotas, Rules ─► Queue.cycle(cluster, now, plan) ─► Decisions: Admit, Preempt, Move, …

The package is pure, as all of core. The owner of the queue, the extender or the simulator, has the
clock and carries out all decisions.
"""

from gpupack_core.queueing.charge import ANY, Charge, Key, Keys
from gpupack_core.queueing.decisions import (
    Admit,
    Consolidate,
    Decisions,
    GiveUp,
    Ground,
    Move,
    Preempt,
    Victim,
)
from gpupack_core.queueing.drain import Drains, node_to_leave
from gpupack_core.queueing.durations import Durations, kind_of
from gpupack_core.queueing.elastic import extra_of
from gpupack_core.queueing.history import History
from gpupack_core.queueing.job import NOBODY, Job, JobId, Running, Tenant, holder_of
from gpupack_core.queueing.planning import places_by
from gpupack_core.queueing.question import Question, Starts
from gpupack_core.queueing.queue import Queue
from gpupack_core.queueing.quota import (
    MAX_LEVELS,
    ROOT,
    Cohort,
    CohortName,
    Fifo,
    Limit,
    Quota,
    Quotas,
)
from gpupack_core.queueing.reasons import Borrowed, Wait, WaitReason
from gpupack_core.queueing.room import Planner
from gpupack_core.queueing.rules import NEVER, Consolidation, Preemption, Rules
from gpupack_core.queueing.start import At, Never, Now, Start, Unknown, WhenReleased, latest
from gpupack_core.queueing.starving import starving
from gpupack_core.queueing.waiting import has_room

__all__ = [
    "ANY",
    "MAX_LEVELS",
    "NEVER",
    "NOBODY",
    "ROOT",
    "Admit",
    "At",
    "Borrowed",
    "Charge",
    "Cohort",
    "CohortName",
    "Consolidate",
    "Consolidation",
    "Decisions",
    "Drains",
    "Durations",
    "Fifo",
    "GiveUp",
    "Ground",
    "History",
    "Job",
    "JobId",
    "Key",
    "Keys",
    "Limit",
    "Move",
    "Never",
    "Now",
    "Planner",
    "Preempt",
    "Preemption",
    "Question",
    "Queue",
    "Quota",
    "Quotas",
    "Rules",
    "Running",
    "Start",
    "Starts",
    "Tenant",
    "Unknown",
    "Victim",
    "Wait",
    "WaitReason",
    "WhenReleased",
    "extra_of",
    "has_room",
    "holder_of",
    "kind_of",
    "latest",
    "node_to_leave",
    "places_by",
    "starving",
]
