# SPDX-License-Identifier: Apache-2.0
"""Experiments, run for each policy and seed. Frozen and picklable: runs go to other processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Final, Protocol

from gpupack_placement import WHOLE_GPU, Node, RequestMix
from gpupack_simulator.engine.settings import Sampling, Settings
from gpupack_simulator.engine.simulator import Simulator
from gpupack_simulator.failures import draw_failures
from gpupack_simulator.inputs.openb import Pod
from gpupack_simulator.inputs.scenario import Scenario
from gpupack_simulator.inputs.snapshot import cluster_of
from gpupack_simulator.job import Job
from gpupack_simulator.record import Run, TimeUnit
from gpupack_simulator.workload import departing_jobs, published_jobs

FIFO: Final = "fifo-skip"
"""The discipline of `replay --departures`.

Strict `fifo` has no steady state on the openb traces at a load of 0.8 and more: the queue head, a
job of 8 GPUs, keeps so many GPUs idle that the queue grows without end."""
WARM_UP: Final = 6.0
"""Lifetimes until an empty cluster counts as in steady state: e⁻⁶ of the start is left."""
MEASURED: Final = 10.0
"""Lifetimes of steady state that are measured."""
SAMPLES: Final = 200
"""Number of samples of a run in steady state; means over time are exact for any number."""
EXACT: Final = 2000
"""Maximum number of jobs of a scenario that is sampled exactly. A larger one is sampled at
intervals, without a record of which job held which GPU."""


class KnownMix(StrEnum):
    """The policies that know the true mix of the pods; all others learn it from arrivals."""

    NONE = "none"
    PUBLISHED = "published"
    """Policies that were published that way: FGD, with the typical pods of the trace."""
    ALL = "all"

    def knows(self, policy: str) -> bool:
        """Tell whether this policy knows the mix."""
        return self is KnownMix.ALL or (
            self is KnownMix.PUBLISHED and policy in _PUBLISHED_WITH_MIX
        )


_PUBLISHED_WITH_MIX = frozenset({"fgd"})


class Experiment(Protocol):
    """An experiment that gives the same run for the same policy and seed, in any process."""

    def run(self, policy: str, seed: int) -> Run:
        """Run from the beginning to the end."""


@dataclass(frozen=True, slots=True)
class Filling:
    """The published experiment (workload.published_jobs)."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    demand: float
    known_mix: KnownMix = KnownMix.PUBLISHED
    fragmentation: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    pictures: bool = False
    """Whether to record what the plots of a report need: causes of free capacity and, for seed 0,
    the holders of GPUs."""

    def run(self, policy: str, seed: int) -> Run:
        """Run with a seed that draws the pods and the order in which nodes win ties."""
        jobs = published_jobs(
            self.pods,
            demand=self.demand,
            capacity_milli=capacity(self.nodes),
            random=_random(seed, "pods"),
        )
        settings = Settings(
            discipline="drop",
            seed=seed,
            time_unit=TimeUnit.ARRIVAL,
            sampling=Sampling(demand_step=0.01, **_sampling_fields(self, seed)),
            occupancy=False,
            mix=mix_of(self.pods) if self.known_mix.knows(policy) else None,
            parameters={"demand": self.demand, "known_mix": str(self.known_mix), **self.parameters},
        )
        return Simulator(self.nodes, jobs, policy, settings).run()


@dataclass(frozen=True, slots=True)
class Departing:
    """Steady state with jobs that come and go (workload.departing_jobs)."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    load: float
    discipline: str = FIFO
    warm_up: float = WARM_UP
    measured: float = MEASURED
    known_mix: KnownMix = KnownMix.PUBLISHED
    fragmentation: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    pictures: bool = False
    """Whether to record what the plots of a report need: causes of free capacity and, for seed 0,
    the holders of GPUs."""

    def run(self, policy: str, seed: int) -> Run:
        """Run with a seed that draws the pods and the order in which nodes win ties."""
        until = self.warm_up + self.measured
        jobs = departing_jobs(
            self.pods,
            load=self.load,
            capacity_milli=capacity(self.nodes),
            until=until,
            random=_random(seed, "pods"),
        )
        settings = Settings(
            discipline=self.discipline,
            seed=seed,
            time_unit=TimeUnit.LIFETIME,
            until=until,
            measured_from=self.warm_up,
            sampling=Sampling(every=until / SAMPLES, **_sampling_fields(self, seed)),
            occupancy=self.pictures and not seed,
            mix=mix_of(self.pods) if self.known_mix.knows(policy) else None,
            parameters={"load": self.load, "known_mix": str(self.known_mix), **self.parameters},
        )
        return Simulator(self.nodes, jobs, policy, settings).run()


@dataclass(frozen=True, slots=True)
class Scripted:
    """A scenario: the same jobs for every seed, which draws failures and the order of ties.

    `snapshot`: the cluster instead of the scenario's nodes; it defines the order of ties itself.
    """

    scenario: Scenario
    parameters: Mapping[str, Any] = field(default_factory=dict)
    snapshot: Mapping[str, Any] | None = None
    adopt: bool = False
    occupancy: bool = False
    """Whether to keep which job held which GPU, for any number of jobs."""

    def run(self, policy: str, seed: int) -> Run:
        """Run to the end of the scenario."""
        return self.simulator(policy, seed).run()

    def simulator(self, policy: str, seed: int) -> Simulator:
        """Return a simulator at the start."""
        given = self.scenario
        failures = draw_failures(given.rates, given.nodes, until=given.until, seed=seed)
        settings = Settings(
            discipline=given.discipline,
            queue=given.rules(),
            quotas=given.quotas,
            windows=given.windows,
            grace=given.queue.preemption.grace,
            seed=seed,
            time_unit=given.time_unit,
            until=given.until,
            sampling=_scenario_sampling(given.jobs),
            occupancy=self.occupancy or len(given.jobs) <= EXACT,
            requeue=given.requeue,
            breakdowns=(*given.breakdowns, *failures),
            maintenance=given.maintenance,
            presence=given.presence,
            parameters={"scenario": given.name, **self.parameters},
        )
        if self.snapshot is not None:
            cluster = cluster_of(self.snapshot, adopt=self.adopt)
            return Simulator(cluster, given.jobs, policy, settings)
        return Simulator(given.nodes, given.jobs, policy, settings)


@dataclass(frozen=True, slots=True)
class OnSnapshot:
    """Jobs on a snapshot of a cluster; what is held there stays held."""

    snapshot: Mapping[str, Any]
    jobs: tuple[Job, ...]
    discipline: str
    adopt: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def run(self, policy: str, seed: int) -> Run:
        """Run; the snapshot defines the order of ties, so every seed gives the same run."""
        settings = Settings(
            discipline=self.discipline,
            seed=seed,
            sampling=_scenario_sampling(self.jobs),
            occupancy=len(self.jobs) <= EXACT,
            parameters=self.parameters,
        )
        cluster = cluster_of(self.snapshot, adopt=self.adopt)
        return Simulator(cluster, self.jobs, policy, settings).run()


def _scenario_sampling(jobs: tuple[Job, ...]) -> Sampling:
    """Return the sampling: after each event, or for many jobs at intervals over their arrivals."""
    span = max((job.arrival for job in jobs), default=0.0)
    exact = len(jobs) <= EXACT or not span
    when = {"each_instant": True} if exact else {"every": span / SAMPLES}
    return Sampling(**when, fragmentation=True, causes=True, by_node=True)


def _sampling_fields(experiment: Filling | Departing, seed: int) -> dict[str, bool]:
    """Return the fields of Sampling that say what to sample."""
    return {
        "fragmentation": experiment.fragmentation or experiment.pictures,
        "causes": experiment.pictures,
        "by_node": experiment.pictures and not seed,
    }


def capacity(nodes: tuple[Node, ...]) -> int:
    """Return the milli-GPU of all devices."""
    return WHOLE_GPU * sum(len(node.devices) for node in nodes)


def mix_of(pods: tuple[Pod, ...]) -> RequestMix:
    """Return the true mix, for `--known-mix`."""
    return RequestMix.of((pod.request, 1.0) for pod in pods)


def _random(seed: int, purpose: str) -> Random:
    """Return a random stream of its own for a purpose, so that no purpose shifts another."""
    return Random(f"{seed}:{purpose}")  # noqa: S311  # not for secrets
