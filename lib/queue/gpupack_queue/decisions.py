# SPDX-License-Identifier: Apache-2.0
"""The decisions of a cycle. The caller writes them, carries them out and reports the outcome."""

from dataclasses import dataclass
from enum import StrEnum

from gpupack_placement.placement import Placement
from gpupack_queue.job import JobId, ReservationId


class PreemptionReason(StrEnum):
    """The policy by which a job is preempted for another one; events carry these names."""

    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    PRIORITY = "Priority"
    SPECULATIVE_BACKFILL = "SpeculativeBackfill"
    """It was backfilled ahead of the job on an estimate, and its permitted delay is over."""
    ELASTIC_SCALE_DOWN = "ElasticScaleDown"
    """It is an extra worker of a gang that continues without it, or that is preempted, too."""
    MAINTENANCE = "Maintenance"
    """It holds devices that are to be drained. It is its own preemptor."""
    CONSOLIDATION = "Consolidation"
    """It is moved, so that free GPUs come together for another job."""
    TIME_WINDOW = "TimeWindow"
    """It holds GPUs that a time-window reservation needs."""
    REVISED = "Revised"
    """It restarts with a higher revision of its spec. It is its own preemptor."""


@dataclass(frozen=True, slots=True)
class Admit:
    """The admission of a job, which starts now on these placements."""

    job: JobId
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that is preempted or moved; `lost_gpu_seconds`: what this costs."""

    job: JobId
    reason: PreemptionReason
    lost_gpu_seconds: float


@dataclass(frozen=True, slots=True)
class Preempt:
    """The preemption of the victims, whose end frees the places that are reserved for the job."""

    job: JobId
    victims: tuple[Victim, ...]
    placements: tuple[Placement, ...]

    @property
    def in_place(self) -> bool:
        """Tell whether the job restarts where it is."""
        return {victim.reason for victim in self.victims} == {PreemptionReason.REVISED}


@dataclass(frozen=True, slots=True)
class PreemptForWindow:
    """The preemption of the victims, whose end frees GPUs for a time-window reservation."""

    reservation: ReservationId
    victims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """The stop and restart of a job on reserved places, which are free but for the job itself."""

    job: JobId
    placements: tuple[Placement, ...]
    reason: PreemptionReason


@dataclass(frozen=True, slots=True)
class Consolidate:
    """Moves of jobs, so that another job fits: all of them together, or none.

    `preempt`: the other job, and its placements once all have left. The `lost_gpu_seconds` of each
    victim are the maximum cost of its move. `moves`: the new placements of the same jobs, each of
    them free now. `gained_gpu_seconds`: what the other job gets earlier than without the moves.
    """

    preempt: Preempt
    moves: tuple[Move, ...]
    gained_gpu_seconds: float

    @property
    def lost_gpu_seconds(self) -> float:
        """Return the GPU-seconds that the moves cost."""
        return sum(victim.lost_gpu_seconds for victim in self.preempt.victims)


@dataclass(frozen=True, slots=True)
class CancelReservation:
    """The end of a reservation that did not lead to a start.

    Its victims did not end in time, and `stuck` has them. Or, without `stuck`, the job did not wait
    again in time, or fits nowhere.
    """

    job: JobId
    stuck: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """The preemptions, moves and consolidations of a cycle: all are carried out, or none.

    They are planned with all admissions of the cycle in place.
    """

    preemptions: tuple[Preempt, ...] = ()
    moves: tuple[Move, ...] = ()
    consolidations: tuple[Consolidate, ...] = ()
    for_windows: tuple[PreemptForWindow, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.preemptions or self.moves or self.consolidations or self.for_windows)


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions in the order in which they were made.

    `due_at`: the time at which the next decision may be due. `complete` False: the cycle reached
    its limit before it looked at all jobs, and the next cycle is due at once.
    """

    admitted: tuple[Admit, ...] = ()
    preemptions: tuple[Preempt, ...] = ()
    cancelled: tuple[CancelReservation, ...] = ()
    moves: tuple[Move, ...] = ()
    consolidations: tuple[Consolidate, ...] = ()
    due_at: float | None = None
    complete: bool = True
    for_windows: tuple[PreemptForWindow, ...] = ()

    @property
    def statement(self) -> Statement:
        """Return what is carried out as a whole, or not at all."""
        return Statement(self.preemptions, self.moves, self.consolidations, self.for_windows)

    def __bool__(self) -> bool:
        return bool(self.admitted or self.cancelled or self.statement)
