# SPDX-License-Identifier: Apache-2.0
"""What was worked out of the starts of the first jobs in the queue, to be used again."""

from dataclasses import dataclass, field
from math import inf

from gpupack_core.queueing.charge import Charge
from gpupack_core.queueing.job import Job, JobId, Places


@dataclass(frozen=True, slots=True)
class Planned:
    """Where a job goes; infinity: after holders without a known end. None: nowhere."""

    job: Job
    at: float
    placements: Places | None
    charge: Charge
    guessed: bool
    holders: tuple[JobId, ...] = ()

    @property
    def until(self) -> float:
        """When it has ended at the latest."""
        return self.job.ends(self.at)


@dataclass(slots=True)
class Estimates:
    """What was worked out last, for the first jobs of the queue; mutable."""

    key: tuple[object, ...] = ()
    made: float = -inf
    planned: list[Planned] = field(default_factory=list)
