# SPDX-License-Identifier: Apache-2.0
"""How a queue is run; a cohort may have its own `fifo` and `min_runtime`. Times are seconds."""

from dataclasses import dataclass, field
from math import inf

from gpupack_core.errors import InvalidQuota
from gpupack_core.queueing.quota import Fifo


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """For whom jobs are stopped. Without any of the three nobody is."""

    nominal: bool = True
    """A tenant within its nominal amount gets it back from those who borrow."""
    fair_share: bool = True
    """A tenant takes from one with a larger share, as long as that is not left with less."""
    priority: bool = True
    """A job takes from jobs of lower priority of its own tenant."""
    min_runtime: float = 60.0
    """Nobody is stopped who has run for less."""
    patience: float = 120.0
    """Another way is sought when victims have not ended for so long."""
    retry: float = 5.0
    """A search for victims that found none is not repeated sooner."""
    searches: int = 1
    """Searches in one cycle at the most, so that it answers soon; the next is due at once."""

    def __post_init__(self) -> None:
        if min(self.min_runtime, self.patience, self.retry, self.searches) < 0:
            raise InvalidQuota(f"a rule of preemption is negative: {self}")

    @property
    def any(self) -> bool:
        """Whether anybody is ever stopped."""
        return self.nominal or self.fair_share or self.priority


NEVER = Preemption(nominal=False, fair_share=False, priority=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidation:
    """Movable jobs are moved for one who lacks room although enough is free, in too many places."""

    ratio: float = 0.0
    """GPU-hours that moves cost by GPU-hour gained, at the most; 0: nobody is moved for others."""
    min_wait: float = 300.0
    """Nobody is moved for who has waited for less."""
    most: int = 8
    """Jobs that are moved for one at the most."""
    calm: float = 3600.0
    """Nobody is moved who began less than so long ago: so nobody is twice in that time."""
    restart: float = 60.0
    """What a move is taken to cost each GPU of who is moved, beside the work that is done again."""
    checkpoint: float = 600.0
    """So much of its work is done again at the most."""
    horizon: float = 3600.0
    """A start is gained by so much at the most, however late it would have been, or if nobody knows
    how late."""
    retry: float = 30.0
    """A search that found nothing is not repeated sooner."""

    def __post_init__(self) -> None:
        times = self.min_wait, self.calm, self.restart, self.checkpoint, self.horizon, self.retry
        if not min(*times, self.ratio, self.most) >= 0 or not max(self.ratio, self.horizon) < inf:
            raise InvalidQuota(f"a rule of consolidation is negative or without end: {self}")

    @property
    def any(self) -> bool:
        """Whether anybody is ever moved."""
        return self.ratio > 0 and self.most > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The defaults are those of a cluster."""

    by_priority: bool = True
    by_share: bool = True
    """Among equal priorities the tenant with the smallest share goes first; then age decides."""
    half_life: float = 0.0
    """Of usage; 0: only what is used now counts."""
    fifo: Fifo = Fifo.BEST_EFFORT
    """Where no cohort says otherwise."""
    keep_room_after: float = 300.0
    """Room is kept for who has waited so long and is first of those who lack room; 0: at once,
    which is EASY backfill; infinity: never. Against those of lower priority it is kept at once."""
    kept: int = 4
    """Room is kept for so many jobs at the most."""
    guess_delay: float = 300.0
    """Who went past another because jobs like it took a short time is stopped for it when it would
    have fitted for so long without; infinity: nobody goes past on a guess."""
    grow_after: float = 300.0
    """An elastic gang grows beside its start, and then not sooner than so long after it began, grew
    or shrank; infinity: only beside its start."""
    foreseen: int = 1
    """For so many of them it is worked out in one cycle at the most, so that it answers soon; the
    next is due at once."""
    preemption: Preemption = field(default_factory=Preemption)
    consolidation: Consolidation = field(default_factory=Consolidation)

    def __post_init__(self) -> None:
        times = (self.half_life, self.keep_room_after, self.guess_delay, self.grow_after)
        if min(*times, self.kept) < 0:
            raise InvalidQuota(f"a rule of the queue is negative: {self}")
        if self.half_life == inf:
            raise InvalidQuota("the half-life is without end; with 0 only what is used now counts")
        if self.foreseen < 1:
            raise InvalidQuota(f"foreseen is {self.foreseen}; without 1 or more nothing goes on")
