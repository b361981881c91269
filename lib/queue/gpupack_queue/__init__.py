# SPDX-License-Identifier: Apache-2.0
"""The queue: quotas, fair shares, backfill and preemption over one cluster.

    Job, Quotas, Rules ─► Queue.cycle(cluster, now, plan) ─► Decisions: Admit, Preempt, Move, …

The package is pure. The owner of the queue, the extender or the simulator, has the clock and
carries out all decisions.
"""

from gpupack_queue.charge import ANY, Charge, ModelKey, ModelKeys
from gpupack_queue.decisions import (
    Admit,
    CancelReservation,
    Consolidate,
    Decisions,
    Move,
    Preempt,
    PreemptForWindow,
    PreemptionReason,
    Statement,
    Victim,
)
from gpupack_queue.explain.reasons import Borrowed, Wait, WaitReason
from gpupack_queue.explain.starving import starving_seconds
from gpupack_queue.job import (
    NO_TENANT,
    NO_USER,
    Job,
    JobId,
    ReservationId,
    RunningJob,
    Tenant,
    User,
    holder_name,
)
from gpupack_queue.pending.elastic_gangs import extra_worker
from gpupack_queue.pending.model_fallback import PermittedModels
from gpupack_queue.pending.pending_jobs import may_fit_on_row
from gpupack_queue.planning import Planner, place_by_policy, with_models
from gpupack_queue.queue import Queue
from gpupack_queue.quotas.quota import (
    MAX_LEVELS,
    ROOT,
    Cohort,
    CohortName,
    Limit,
    Quota,
    Quotas,
)
from gpupack_queue.quotas.usage_history import UsageHistory
from gpupack_queue.rules import (
    NO_PREEMPTION,
    ConsolidationRules,
    OrderPolicy,
    PreemptionRules,
    Rules,
)
from gpupack_queue.running.drain import Drains, node_to_drain
from gpupack_queue.running.durations import DurationEstimates, common_name
from gpupack_queue.start import (
    At,
    Never,
    Now,
    Start,
    Unknown,
    Unsatisfied,
    WhenReleased,
    latest_start,
)
from gpupack_queue.what_if import PredictedStart, WhatIf
from gpupack_queue.window import Window
from gpupack_queue.windows.report import WindowReport

__all__ = [
    "ANY",
    "MAX_LEVELS",
    "NO_PREEMPTION",
    "NO_TENANT",
    "NO_USER",
    "ROOT",
    "Admit",
    "At",
    "Borrowed",
    "CancelReservation",
    "Charge",
    "Cohort",
    "CohortName",
    "Consolidate",
    "ConsolidationRules",
    "Decisions",
    "Drains",
    "DurationEstimates",
    "Job",
    "JobId",
    "Limit",
    "ModelKey",
    "ModelKeys",
    "Move",
    "Never",
    "Now",
    "OrderPolicy",
    "PermittedModels",
    "Planner",
    "PredictedStart",
    "Preempt",
    "PreemptForWindow",
    "PreemptionReason",
    "PreemptionRules",
    "Queue",
    "Quota",
    "Quotas",
    "ReservationId",
    "Rules",
    "RunningJob",
    "Start",
    "Statement",
    "Tenant",
    "Unknown",
    "Unsatisfied",
    "UsageHistory",
    "User",
    "Victim",
    "Wait",
    "WaitReason",
    "WhatIf",
    "WhenReleased",
    "Window",
    "WindowReport",
    "common_name",
    "extra_worker",
    "holder_name",
    "latest_start",
    "may_fit_on_row",
    "node_to_drain",
    "place_by_policy",
    "starving_seconds",
    "with_models",
]
