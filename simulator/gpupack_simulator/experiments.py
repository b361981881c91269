# SPDX-License-Identifier: Apache-2.0
"""What is run for each policy and seed. Frozen and picklable: runs go to other processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from random import Random
from typing import Any, Final, Protocol

from gpupack_core import WHOLE_GPU, Mix, Node, policy_named
from gpupack_simulator.compiled.inputs import can_do
from gpupack_simulator.engine.settings import Sampling, Settings
from gpupack_simulator.engine.simulator import Simulator
from gpupack_simulator.failures import drawn
from gpupack_simulator.inputs.openb import Pod
from gpupack_simulator.inputs.scenario import Scenario
from gpupack_simulator.inputs.snapshot import cluster_of
from gpupack_simulator.job import Job
from gpupack_simulator.record import Run, TimeUnit
from gpupack_simulator.workload import departing_jobs, published_jobs

FIFO: Final = "fifo-skip"
"""The discipline of `replay --departures`.

Strict `fifo` has no steady state on the openb traces at a load of 0.8 and more: the head of the
line, a job of 8 GPUs, keeps so much idle that the queue grows without end.
"""
WARM_UP: Final = 6.0
"""Lifetimes until an empty cluster is taken to be in steady state: e⁻⁶ of the start is left."""
MEASURED: Final = 10.0
"""Lifetimes of steady state that are measured."""
SAMPLES: Final = 200
"""Samples of a run in steady state; means over time are exact whatever their number."""


LONG: Final = 10_000
"""Jobs; fewer are run faster than numba is loaded."""

EXACT: Final = 2000
"""A scenario of more jobs is sampled at intervals, and who held which GPU is not kept."""


class KnownMix(StrEnum):
    """Who is told the true mix of the pods; all others learn it from arrivals."""

    NONE = "none"
    PUBLISHED = "published"
    """Policies that were published that way: FGD, whose typical pods are those of the trace."""
    ALL = "all"

    def tells(self, policy: str) -> bool:
        """Whether this policy is told."""
        return self is KnownMix.ALL or (self is KnownMix.PUBLISHED and policy in _TOLD)


_TOLD = frozenset({"fgd"})


class Experiment(Protocol):
    """Gives the same run for the same policy and seed, in any process."""

    def run(self, policy: str, seed: int) -> Run:
        """From the beginning to the end."""


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
    """Record what the plots of a report need: why GPUs are free and, of seed 0, who holds which."""

    def run(self, policy: str, seed: int) -> Run:
        """Seed draws both the pods and the order in which nodes win ties."""
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
            sampling=Sampling(demand_step=0.01, **_looks(self, seed)),
            occupancy=False,
            mix=mix_of(self.pods) if self.known_mix.tells(policy) else None,
            parameters={"demand": self.demand, "known_mix": str(self.known_mix), **self.parameters},
        )
        return _run(self.nodes, jobs, policy, settings)


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
    """Record what the plots of a report need: why GPUs are free and, of seed 0, who holds which."""

    def run(self, policy: str, seed: int) -> Run:
        """As of Filling."""
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
            sampling=Sampling(every=until / SAMPLES, **_looks(self, seed)),
            occupancy=self.pictures and not seed,
            mix=mix_of(self.pods) if self.known_mix.tells(policy) else None,
            parameters={"load": self.load, "known_mix": str(self.known_mix), **self.parameters},
        )
        return _run(self.nodes, jobs, policy, settings)


@dataclass(frozen=True, slots=True)
class Scripted:
    """A scenario: the same jobs for every seed, which draws failures and the order of ties.

    `snapshot`: the cluster, instead of the scenario's nodes; it says itself how ties are broken.
    """

    scenario: Scenario
    parameters: Mapping[str, Any] = field(default_factory=dict)
    snapshot: Mapping[str, Any] | None = None
    adopt: bool = False
    occupancy: bool = False
    """Keep who held which GPU, of however many jobs."""

    def run(self, policy: str, seed: int) -> Run:
        """To the end of the scenario."""
        return self.simulator(policy, seed).run()

    def simulator(self, policy: str, seed: int) -> Simulator:
        """Before anything has happened."""
        given = self.scenario
        failures = drawn(given.rates, given.nodes, until=given.until, seed=seed)
        settings = Settings(
            discipline=given.discipline,
            queue=given.rules(),
            quotas=given.quotas,
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
    """These jobs on that state of a cluster; what is held there stays held."""

    snapshot: Mapping[str, Any]
    jobs: tuple[Job, ...]
    discipline: str
    adopt: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def run(self, policy: str, seed: int) -> Run:
        """The snapshot says how ties are broken, so every seed gives the same."""
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
    """After each event; of many jobs at intervals, over the time in which they arrive."""
    span = max((job.arrival for job in jobs), default=0.0)
    exact = len(jobs) <= EXACT or not span
    when = {"each_instant": True} if exact else {"every": span / SAMPLES}
    return Sampling(**when, fragmentation=True, causes=True, by_node=True)


def _looks(experiment: Filling | Departing, seed: int) -> dict[str, bool]:
    """Of Sampling: what is looked at in each sample."""
    return {
        "fragmentation": experiment.fragmentation or experiment.pictures,
        "causes": experiment.pictures,
        "by_node": experiment.pictures and not seed,
    }


def _run(nodes: tuple[Node, ...], jobs: list[Job], policy: str, settings: Settings) -> Run:
    """In machine code where that pays and can be: the same run."""
    pays = len(jobs) >= LONG and find_spec("numba") is not None
    if not (pays and can_do(nodes, jobs, policy_named(policy), settings)):
        return Simulator(nodes, jobs, policy, settings).run()
    from gpupack_simulator.compiled.replay import Replay  # noqa: PLC0415  (numba is optional)

    return Replay(nodes, jobs, policy, settings).run()


def capacity(nodes: tuple[Node, ...]) -> int:
    """Milli-GPU of all devices."""
    return WHOLE_GPU * sum(len(node.devices) for node in nodes)


def mix_of(pods: tuple[Pod, ...]) -> Mix:
    """The true mix, for `--known-mix`."""
    return Mix.of((pod.request, 1.0) for pod in pods)


def _random(seed: int, purpose: str) -> Random:
    """Independent streams: what one purpose draws never shifts another."""
    return Random(f"{seed}:{purpose}")  # noqa: S311  # not for secrets
