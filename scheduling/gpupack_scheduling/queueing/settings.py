# SPDX-License-Identifier: Apache-2.0
"""How the queue is run, as the chart's values have it (`queue`)."""

from typing import Annotated, Final

import msgspec

from gpupack_core.queueing import Consolidation, Preemption, Rules
from gpupack_crds.quota import Order
from gpupack_crds.wire import Wire
from gpupack_scheduling.queueing.quotas import ORDERS, DefaultQuota

MAX_SECONDS: Final = 31_536_000.0

Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]


class PreemptionSettings(Wire, frozen=True, forbid_unknown_fields=True):
    """For whom jobs are stopped.

    Attributes:
        nominal: who is within its promise gets it back from those who borrow.
        fair_share: who has a smaller share takes from who has a larger one.
        priority: a job takes from lower priorities of its own namespace.
        pods: pods of their own can be stopped, too: they are evicted.
        min_run_seconds: nobody is stopped who has run for less, where no cohort says otherwise.
        patience_seconds: victims that have not ended by then are named, and left alone.
    """

    nominal: bool = True
    fair_share: bool = True
    priority: bool = True
    pods: bool = True
    min_run_seconds: Seconds = 60.0
    patience_seconds: Seconds = 120.0


class ConsolidationSettings(Wire, frozen=True, forbid_unknown_fields=True):
    """For whom movable jobs are moved, where enough is free on too many nodes.

    Attributes:
        ratio: GPU-hours that the moves cost by GPU-hour gained, at the most; 0: nobody is moved.
        min_wait_seconds: nobody is moved for who has waited for less.
        most: jobs that are moved for one.
        calm_seconds: nobody is moved who began, or was moved, less than so long ago.
        restart_seconds: what a move is taken to cost, beside the work that is done again.
        checkpoint_seconds: so much of its work is taken to be done again at the most.
        horizon_seconds: no start is taken to be gained by more.
    """

    ratio: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    min_wait_seconds: Seconds = 300.0
    most: Annotated[int, msgspec.Meta(ge=0, le=64)] = 8
    calm_seconds: Seconds = 3600.0
    restart_seconds: Seconds = 60.0
    checkpoint_seconds: Seconds = 600.0
    horizon_seconds: Seconds = 3600.0


class QueueSettings(Wire, frozen=True, forbid_unknown_fields=True):
    """All of it.

    Attributes:
        order: whether others may go before the first where that finds no room.
        half_life_seconds: of what is used over time; 0: only what is used now counts.
        keep_room_after_seconds: for who is first and has waited for so long room is kept.
        learn_durations: without a deadline a job is expected to take as long as those of its name
            in its namespace did.
        guess_delay_seconds: who went before another on that ground is stopped for it when it has
            delayed it for so long.
        grow_after_seconds: an elastic gang grows when it starts, and then not sooner than so long
            after it began, grew or shrank.
        show_lack_after_seconds: a pod of its own that has waited for so long, and lacks nothing but
            room, is shown to kube-scheduler, and so to whoever adds nodes; None: never.
        preemption: for whom jobs are stopped.
        consolidation: for whom movable jobs are moved.
        default: of namespaces without a GPUQuota.
    """

    order: Order = "BestEffort"
    half_life_seconds: Seconds = 0.0
    keep_room_after_seconds: Seconds = 300.0
    learn_durations: bool = False
    guess_delay_seconds: Seconds = 300.0
    grow_after_seconds: Seconds = 300.0
    show_lack_after_seconds: Seconds | None = None
    preemption: PreemptionSettings = PreemptionSettings()
    consolidation: ConsolidationSettings = ConsolidationSettings()
    default: DefaultQuota = DefaultQuota()

    def as_rules(self) -> Rules:
        """As core has them."""
        return Rules(
            fifo=ORDERS[self.order],
            half_life=self.half_life_seconds,
            keep_room_after=self.keep_room_after_seconds,
            guess_delay=self.guess_delay_seconds,
            grow_after=self.grow_after_seconds,
            preemption=Preemption(
                nominal=self.preemption.nominal,
                fair_share=self.preemption.fair_share,
                priority=self.preemption.priority,
                min_runtime=self.preemption.min_run_seconds,
                patience=self.preemption.patience_seconds,
            ),
            consolidation=Consolidation(
                ratio=self.consolidation.ratio,
                min_wait=self.consolidation.min_wait_seconds,
                most=self.consolidation.most,
                calm=self.consolidation.calm_seconds,
                restart=self.consolidation.restart_seconds,
                checkpoint=self.consolidation.checkpoint_seconds,
                horizon=self.consolidation.horizon_seconds,
            ),
        )
