# SPDX-License-Identifier: Apache-2.0
"""Settings of the queue, from the chart's values (`queue`)."""

from typing import Annotated, Final

import msgspec

from gpupack_crds.quota import Order
from gpupack_crds.wire import Wire
from gpupack_queue import ConsolidationRules, PreemptionRules, Rules
from gpupack_scheduler.queueing.quotas.quota_stores import ORDERS, DefaultQuota

MAX_SECONDS: Final = 31_536_000.0

Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]


class PreemptionSettings(Wire, frozen=True, forbid_unknown_fields=True):
    """Policies of preemption.

    Attributes:
        reclaim: a namespace gets its nominal quota back from namespaces that borrow.
        fair_share: a namespace takes from one with a larger share value.
        priority: a job takes from jobs of lower priority of its own namespace.
        pods: standalone pods can be preempted, too: they are evicted.
        min_run_seconds: no job is preempted that has run for less, unless a cohort says otherwise.
        victim_timeout_seconds: victims that have not ended so long after their grace period are
            reported, and no longer waited for: they still end.
    """

    reclaim: bool = True
    fair_share: bool = True
    priority: bool = True
    pods: bool = True
    min_run_seconds: Seconds = 60.0
    victim_timeout_seconds: Seconds = 120.0


class ConsolidationSettings(Wire, frozen=True, forbid_unknown_fields=True):
    """Limits of consolidation: moves of jobs where enough GPUs are free on too many nodes.

    Attributes:
        ratio: maximum GPU-hours that the moves cost per GPU-hour gained; 0: no job moves.
        min_wait_seconds: no job moves for one that has waited for less.
        max_moves: maximum of jobs that move for one job.
        cooldown_seconds: no job moves that started, or was moved, less than this time ago.
        restart_seconds: assumed cost of a move, in addition to the work that is repeated.
        checkpoint_seconds: maximum of work that is assumed to be repeated.
        horizon_seconds: maximum time that counts as gained by an earlier start.
    """

    ratio: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    min_wait_seconds: Seconds = 300.0
    max_moves: Annotated[int, msgspec.Meta(ge=0, le=64)] = 8
    cooldown_seconds: Seconds = 3600.0
    restart_seconds: Seconds = 60.0
    checkpoint_seconds: Seconds = 600.0
    horizon_seconds: Seconds = 3600.0


class QueueSettings(Wire, frozen=True, forbid_unknown_fields=True):
    """All settings of the queue.

    Attributes:
        order: whether later jobs may start before a queue head that does not fit.
        half_life_seconds: half-life of past usage; 0: only current usage counts.
        reserve_after_seconds: waiting time after which a queue head gets a reservation.
        learn_durations: a job without a deadline is expected to take as long as earlier jobs of its
            name in its namespace.
        max_backfill_delay_seconds: a job backfilled on an estimate is preempted when it has
            delayed a queue head for this time.
        grow_after_seconds: an elastic gang grows when it starts, and then no sooner than this time
            after it started, grew or shrank.
        notify_autoscaler_after_seconds: waiting time after which a standalone pod that
            lacks only GPUs is shown to kube-scheduler, and so to an autoscaler; None: never.
        preemption: policies of preemption.
        consolidation: limits of consolidation.
        default: quota of namespaces without a GPUQuota.
    """

    order: Order = "BestEffort"
    half_life_seconds: Seconds = 0.0
    reserve_after_seconds: Seconds = 300.0
    learn_durations: bool = False
    max_backfill_delay_seconds: Seconds = 300.0
    grow_after_seconds: Seconds = 300.0
    notify_autoscaler_after_seconds: Seconds | None = None
    preemption: PreemptionSettings = PreemptionSettings()
    consolidation: ConsolidationSettings = ConsolidationSettings()
    default: DefaultQuota = DefaultQuota()

    def as_rules(self) -> Rules:
        """Convert the settings into the queue's rules."""
        return Rules(
            order=ORDERS[self.order],
            half_life_seconds=self.half_life_seconds,
            reserve_after_seconds=self.reserve_after_seconds,
            max_backfill_delay_seconds=self.max_backfill_delay_seconds,
            grow_after_seconds=self.grow_after_seconds,
            preemption=PreemptionRules(
                reclaim=self.preemption.reclaim,
                fair_share=self.preemption.fair_share,
                priority=self.preemption.priority,
                min_runtime_seconds=self.preemption.min_run_seconds,
                victim_timeout_seconds=self.preemption.victim_timeout_seconds,
            ),
            consolidation=ConsolidationRules(
                ratio=self.consolidation.ratio,
                min_wait_seconds=self.consolidation.min_wait_seconds,
                max_moves=self.consolidation.max_moves,
                cooldown_seconds=self.consolidation.cooldown_seconds,
                restart_seconds=self.consolidation.restart_seconds,
                checkpoint_seconds=self.consolidation.checkpoint_seconds,
                horizon_seconds=self.consolidation.horizon_seconds,
            ),
        )
