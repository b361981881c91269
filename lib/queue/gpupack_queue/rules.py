# SPDX-License-Identifier: Apache-2.0
"""The rules of a queue; a cohort may have its own `order` and `min_runtime_seconds`."""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from gpupack_queue.errors import InvalidQuota


class OrderPolicy(StrEnum):
    """The order: whether jobs may start before a queue head that does not fit."""

    STRICT = "strict"
    BEST_EFFORT = "best-effort"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionRules:
    """The preemption policies.

    With none of the three on, only extra workers and speculatively backfilled jobs are preempted.
    """

    reclaim: bool = True
    """A tenant within its nominal quota reclaims it from tenants that borrow."""
    fair_share: bool = True
    """A tenant takes from one with a larger share, as long as that one is not left with less."""
    priority: bool = True
    """A job takes from jobs of lower priority of its own tenant."""
    min_runtime_seconds: float = 60.0
    """The time from its admission during which a job is no victim of these policies."""
    victim_timeout_seconds: float = 120.0
    """The time, from the end of their grace period, after which victims are no longer
    waited for. They still end, and the queue searches for others.
    """
    retry_seconds: float = 5.0
    """The minimum time from a search for a request that found no victims to the next one."""
    max_searches_per_cycle: int = 1
    """The maximum number of searches in a cycle, so that it is short; the next is due at once."""

    def __post_init__(self) -> None:
        if (
            min(
                self.min_runtime_seconds,
                self.victim_timeout_seconds,
                self.retry_seconds,
                self.max_searches_per_cycle,
            )
            < 0
        ):
            raise InvalidQuota(f"a rule of preemption is negative: {self}")

    @property
    def any(self) -> bool:
        """Tell whether any of the three policies is on."""
        return self.reclaim or self.fair_share or self.priority


NO_PREEMPTION = PreemptionRules(reclaim=False, fair_share=False, priority=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationRules:
    """The rules for moving jobs for one that lacks GPUs although enough are free in total."""

    ratio: float = 0.0
    """The maximum cost of moves, in GPU-hours per GPU-hour gained; 0: no job moves for another."""
    min_wait_seconds: float = 300.0
    """The minimum waiting time of a job for which others move."""
    max_moves: int = 8
    """The maximum number of jobs that move for one job."""
    cooldown_seconds: float = 3600.0
    """The time after its start, and so after each move, during which a job does not move."""
    restart_seconds: float = 60.0
    """The cost of a move for each GPU of the job, in addition to the work that is repeated."""
    checkpoint_seconds: float = 600.0
    """The maximum time of work that a moved job repeats."""
    horizon_seconds: float = 3600.0
    """The maximum gain of a start.

    It limits the gain however late the start would have been, and where that is unknown.
    """
    retry_seconds: float = 30.0
    """The minimum time from a search for a request that found nothing to the next one."""

    def __post_init__(self) -> None:
        times = (
            self.min_wait_seconds,
            self.cooldown_seconds,
            self.restart_seconds,
            self.checkpoint_seconds,
            self.horizon_seconds,
            self.retry_seconds,
        )
        if (
            not min(*times, self.ratio, self.max_moves) >= 0
            or not max(self.ratio, self.horizon_seconds) < inf
        ):
            raise InvalidQuota(f"a rule of consolidation is negative or without end: {self}")

    @property
    def any(self) -> bool:
        """Tell whether jobs are moved for others."""
        return self.ratio > 0 and self.max_moves > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a queue; the defaults are those of a cluster."""

    by_priority: bool = True
    by_share: bool = True
    """Among equal priorities the tenant with the smallest share goes first; then age decides."""
    half_life_seconds: float = 0.0
    """The half-life of usage; 0: only current usage counts."""
    order: OrderPolicy = OrderPolicy.BEST_EFFORT
    """The order where no cohort sets it."""
    reserve_after_seconds: float = 300.0
    """The waiting time after which a queue head that lacks GPUs gets a reservation.

    With 0 it gets one at once, which is EASY backfill. Infinity: never. Otherwise it gets one
    against jobs of lower priority at once.
    """
    max_reservations: int = 4
    """The maximum number of backfill reservations of each of the two kinds.

    One kind holds back only jobs of lower priority, the other kind all jobs.
    """
    max_backfill_delay_seconds: float = 300.0
    """The time for which a speculatively backfilled job may delay a queue head.

    After the head would have fitted without it for so long, the job is preempted. Infinity: no job
    is speculatively backfilled.
    """
    grow_after_seconds: float = 300.0
    """The time after its start or a change of its size during which an elastic gang does not grow.

    The growth at its start is exempt. Infinity: it grows only then.
    """
    max_reservations_per_cycle: int = 1
    """The maximum number of reservations that a cycle computes, so that it is short.

    The next cycle is due at once.
    """
    preemption: PreemptionRules = field(default_factory=PreemptionRules)
    consolidation: ConsolidationRules = field(default_factory=ConsolidationRules)

    def __post_init__(self) -> None:
        times = (
            self.half_life_seconds,
            self.reserve_after_seconds,
            self.max_backfill_delay_seconds,
            self.grow_after_seconds,
        )
        if min(*times, self.max_reservations) < 0:
            raise InvalidQuota(f"a rule of the queue is negative: {self}")
        if self.half_life_seconds == inf:
            raise InvalidQuota("the half-life is without end; with 0 only what is used now counts")
        if self.max_reservations_per_cycle < 1:
            raise InvalidQuota("max_reservations_per_cycle must be 1 or more")
