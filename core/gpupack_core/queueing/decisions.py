# SPDX-License-Identifier: Apache-2.0
"""What a cycle answers. Nothing has been done yet: the caller writes, acts and says what became."""

from dataclasses import dataclass
from enum import StrEnum

from gpupack_core.placement import Placement
from gpupack_core.queueing.job import JobId


class Ground(StrEnum):
    """With which right a job is stopped for another; events carry these names."""

    NOMINAL_QUOTA = "ReclaimedNominalQuota"
    FAIR_SHARE = "ReclaimedFairShare"
    PRIORITY = "LowerPriority"
    ESTIMATE = "BackfilledOnEstimate"
    """It went past the job on a guess, and has delayed it for as long as a guess may."""
    SHRINK = "ElasticGangShrinks"
    """It is an extra worker of a gang that goes on without it, or that is stopped, too."""
    MAINTENANCE = "Maintenance"
    """Devices that it holds are to be left; it is its own beneficiary."""
    CONSOLIDATION = "Consolidation"
    """It is moved, so that what is free comes together where another has room."""
    REVISED = "Revised"
    """It starts again by a higher revision of its spec; it is its own beneficiary."""


@dataclass(frozen=True, slots=True)
class Admit:
    """The job starts now, there."""

    job: JobId
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Victim:
    """`lost`: GPU-seconds that it has had."""

    job: JobId
    ground: Ground
    lost: float


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop the victims; the room is kept for the job, which fits there once all have ended."""

    job: JobId
    victims: tuple[Victim, ...]
    placements: tuple[Placement, ...]

    @property
    def own(self) -> bool:
        """Whether the job starts again where it is."""
        return {victim.ground for victim in self.victims} == {Ground.REVISED}


@dataclass(frozen=True, slots=True)
class Move:
    """Stop the job and start it again there: the room is kept for it, and free but for itself."""

    job: JobId
    placements: tuple[Placement, ...]
    ground: Ground


@dataclass(frozen=True, slots=True)
class Consolidate:
    """Move jobs, so that another has room: all of it together, or nothing.

    `preempt`: for whom, and where it goes once all have left; of each victim `lost` is what its
    move costs at the most. `moves`: of the same jobs, each to a place that is free by now.
    `gained`: GPU-seconds that the other has earlier than it would have had without.
    """

    preempt: Preempt
    moves: tuple[Move, ...]
    gained: float

    @property
    def lost(self) -> float:
        """GPU-seconds that the moves cost."""
        return sum(victim.lost for victim in self.preempt.victims)


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Those who were to end, or to come back, have not in time: the room is kept no longer."""

    job: JobId
    stuck: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class Decisions:
    """In the order in which they were made.

    `look_at`: the next decision may be due then. `complete` False: there was enough to do before
    all had been looked at, and the next cycle is due at once.
    """

    admitted: tuple[Admit, ...] = ()
    preemptions: tuple[Preempt, ...] = ()
    given_up: tuple[GiveUp, ...] = ()
    moves: tuple[Move, ...] = ()
    consolidations: tuple[Consolidate, ...] = ()
    look_at: float | None = None
    complete: bool = True

    def __bool__(self) -> bool:
        return bool(
            self.admitted or self.preemptions or self.given_up or self.moves or self.consolidations
        )
