# SPDX-License-Identifier: Apache-2.0
"""What a run is asked to do, beside nodes, jobs and policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from gpupack_core import DeviceUuid, Mix
from gpupack_core.queueing import Quotas
from gpupack_simulator.disciplines import Discipline
from gpupack_simulator.engine.maintenance import Maintenance, Presence
from gpupack_simulator.engine.own_queue import JobQueue
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.failures import Breakdown
from gpupack_simulator.record import TimeUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """When the cluster is looked at, and at what. At least one of the first three says when.

    What costs a pass over the nodes is off by default.
    """

    each_instant: bool = False
    """After everything that happens: samples are then the exact course of a run."""
    every: float = inf
    """Time between samples, from 0 on."""
    demand_step: float = inf
    """Sample whenever the demand so far has grown by this fraction of the capacity."""
    fragmentation: bool = False
    """FGD's measure, under the mix of all jobs of the run."""
    causes: bool = False
    """Why what is free serves nobody."""
    by_node: bool = False
    """What is allocated on each node."""

    def __post_init__(self) -> None:
        if not self.every > 0 or not self.demand_step > 0:
            raise InvalidParameter("the distance between samples must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The defaults suit a small scenario: strict order, everything recorded."""

    discipline: str = "fifo"
    """Of DISCIPLINES."""
    queue: Discipline | JobQueue | None = None
    """Rules of one's own, or a queue of one's own, which knows no quotas but those that it keeps
    itself; the discipline is then a name for the record."""
    quotas: Quotas | None = None
    """None: nobody is promised anything."""
    grace: float = 0.0
    """How long a job runs on that is to be stopped for another."""
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
    speeds: Mapping[DeviceUuid, float] = field(default_factory=dict)
    """How fast GPUs are, against those by which jobs' durations go; 1 where nothing is said. The
    slowest GPU of a job sets its pace."""
    breakdowns: tuple[Breakdown, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    presence: tuple[Presence, ...] = ()
    """Of nodes that are not there from the start to the end."""
    mix: Mix | None = None
    """Known to the policy from the start; None: it learns the mix from arrivals."""
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Kept in the run's record: load, demand, names of files."""

    def __post_init__(self) -> None:
        own = self.queue is not None and not isinstance(self.queue, Discipline)
        if own and self.quotas is not None:
            raise InvalidParameter("a queue of one's own keeps quotas itself; give it none")
        slowest = min(self.speeds.values(), default=1.0)
        if not slowest > 0:
            raise InvalidParameter(f"a GPU's speed is {slowest:g}; it must be positive")
        if not 0 <= self.grace < inf:
            raise InvalidParameter(f"a grace period of {self.grace:g} is negative or without end")
        if not self.until > self.measured_from >= 0:
            raise InvalidParameter(
                f"a run from 0 to {self.until:g} cannot be measured from {self.measured_from:g}"
            )
