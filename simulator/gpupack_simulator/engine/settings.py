# SPDX-License-Identifier: Apache-2.0
"""What a run is asked to do, beside nodes, jobs and policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from gpupack_core import Mix
from gpupack_simulator.engine.sampling import Sampling
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.failures import Breakdown
from gpupack_simulator.record import TimeUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The defaults suit a small scenario: strict order, everything recorded."""

    discipline: str = "fifo"
    """Of queueing.DISCIPLINES."""
    seed: int = 0
    """Draws the order in which nodes win ties; the workload has been drawn before."""
    time_unit: TimeUnit = TimeUnit.STEP
    until: float = inf
    """The run ends here at the latest; infinity: when nothing more can happen."""
    measured_from: float = 0.0
    """What is before is warm-up."""
    sampling: Sampling = field(default_factory=lambda: Sampling(each_instant=True))
    occupancy: bool = True
    """Keep who held which device when, for the Gantt picture."""
    requeue: bool = True
    """Whether jobs that lose a node or GPU are queued again; otherwise they are killed."""
    breakdowns: tuple[Breakdown, ...] = ()
    mix: Mix | None = None
    """Known to the policy from the start; None: it learns the mix from arrivals."""
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Kept in the run's record: load, demand, names of files."""

    def __post_init__(self) -> None:
        if not self.until > self.measured_from >= 0:
            raise InvalidParameter(
                f"a run from 0 to {self.until:g} cannot be measured from {self.measured_from:g}"
            )
