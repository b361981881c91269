# SPDX-License-Identifier: Apache-2.0
"""Settings of a run other than nodes, jobs and policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from gpupack_placement import DeviceUuid, RequestMix
from gpupack_queue import Quotas, Window
from gpupack_simulator.disciplines import Discipline
from gpupack_simulator.engine.maintenance import Maintenance, Presence
from gpupack_simulator.engine.own_queue import JobQueue
from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.failures import Breakdown
from gpupack_simulator.record import TimeUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The times and contents of samples. At least one of the first three fields sets the times.

    Figures that cost a pass over the nodes are off by default.
    """

    each_instant: bool = False
    """Sample after every instant with events: samples then show the exact course of the run."""
    every: float = inf
    """Time between samples, from 0 on."""
    demand_step: float = inf
    """Sample whenever the demand so far has grown by this fraction of the capacity."""
    fragmentation: bool = False
    """FGD's measure, under the mix of all jobs of the run."""
    causes: bool = False
    """Causes of free capacity."""
    by_node: bool = False
    """Allocation of each node."""

    def __post_init__(self) -> None:
        if not self.every > 0 or not self.demand_step > 0:
            raise InvalidParameter("the distance between samples must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The defaults suit a small scenario: strict order, everything recorded."""

    discipline: str = "fifo"
    """A name in DISCIPLINES."""
    queue: Discipline | JobQueue | None = None
    """Custom rules or a custom queue, which keeps its own quotas; the discipline is then only a
    name for the record."""
    quotas: Quotas | None = None
    """Quotas of tenants; None: there are none."""
    windows: tuple[Window, ...] = ()
    """Windows of time-window reservations."""
    grace: float = 0.0
    """Grace period: how long a job runs on after it is preempted."""
    seed: int = 0
    """Seed of the order in which nodes win ties; the workload is drawn before."""
    time_unit: TimeUnit = TimeUnit.STEP
    until: float = inf
    """Latest end of the run; infinity: it ends when nothing more can happen."""
    measured_from: float = 0.0
    """Start of the measurement; the time before is warm-up."""
    sampling: Sampling = field(default_factory=lambda: Sampling(each_instant=True))
    occupancy: bool = True
    """Whether to keep which job held which device when, for the Gantt plot."""
    requeue: bool = True
    """Whether jobs that lose a node or GPU are queued again; otherwise they are killed."""
    speeds: Mapping[DeviceUuid, float] = field(default_factory=dict)
    """Speeds of GPUs relative to those that the jobs' durations assume; the default is 1. The
    slowest GPU of a job determines its pace."""
    breakdowns: tuple[Breakdown, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    presence: tuple[Presence, ...] = ()
    """Presence of nodes that are not there from start to end."""
    mix: RequestMix | None = None
    """Mix that the policy knows from the start; None: it learns the mix from arrivals."""
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Parameters for the run's record: load, demand, names of files."""

    def __post_init__(self) -> None:
        own = self.queue is not None and not isinstance(self.queue, Discipline)
        if own and self.quotas is not None:
            raise InvalidParameter("a queue of one's own keeps quotas itself; give it none")
        if own and self.windows:
            raise InvalidParameter("a queue of one's own has no reservations; give it none")
        slowest = min(self.speeds.values(), default=1.0)
        if not slowest > 0:
            raise InvalidParameter(f"a GPU's speed is {slowest:g}; it must be positive")
        if not 0 <= self.grace < inf:
            raise InvalidParameter(f"a grace period of {self.grace:g} is negative or without end")
        if not self.until > self.measured_from >= 0:
            raise InvalidParameter(
                f"a run from 0 to {self.until:g} cannot be measured from {self.measured_from:g}"
            )
