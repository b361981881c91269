# SPDX-License-Identifier: Apache-2.0
"""Plans for the first jobs of the queue, kept for later estimates."""

from dataclasses import dataclass, field
from math import inf

from gpupack_queue.charge import Charge
from gpupack_queue.job import Job, JobId, Places


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """The planned start and places of a job.

    `at` infinite: after holders without a known end. `placements` None: nowhere.
    """

    job: Job
    start_at: float
    placements: Places | None
    charge: Charge
    is_estimated: bool
    holders: tuple[JobId, ...] = ()

    @property
    def until(self) -> float:
        """Return the latest end."""
        return self.job.latest_end(self.start_at)


@dataclass(slots=True)
class EstimateCache:
    """The last plans for the first jobs of the queue; mutable."""

    key: tuple[object, ...] = ()
    computed_at: float = -inf
    planned: list[PlannedStart] = field(default_factory=list)
