# SPDX-License-Identifier: Apache-2.0
"""The workers of a job whose logs are shown."""

import dataclasses
from typing import Final, Self

from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.kinds import GpuJob
from gpupack_crds.placement import by_worker

MAX_LOGS: Final = 8
"""Maximum workers whose logs are shown by default; for larger jobs only the first is shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenWorkers:
    """Some or all workers of a job.

    Attributes:
        indices: indices of the workers.
    """

    indices: frozenset[int]

    @classmethod
    def of(cls, spec: GpuJobSpec, named: frozenset[int]) -> Self:
        """Return the named workers; without names all, or the first of many."""
        all_of_it = frozenset({0} if spec.workers > MAX_LOGS else range(spec.workers))
        return cls(named or all_of_it)

    @property
    def prefix_lines(self) -> bool:
        """Whether each line needs its worker's index."""
        return len(self.indices) > 1

    def prefix(self, index: int) -> str:
        """Return the prefix of a worker's lines."""
        return f"[{index}] " if self.prefix_lines else ""

    def expected(self, job: GpuJob, attempt: int) -> frozenset[int]:
        """Return the chosen workers of this attempt: an elastic job may run with fewer workers."""
        status = job.status
        if attempt == status.attempt and status.holds_placement:
            there = frozenset(each.worker for each in by_worker(status.placement))
        else:
            there = frozenset(range(job.spec.least))
        return self.indices & there
