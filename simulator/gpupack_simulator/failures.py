# SPDX-License-Identifier: Apache-2.0
"""Failures by time: given as a list, or drawn from rates.

A healthy component fails after an exponential time and is repaired after an exponential time. The
draw depends only on seed, component and rates, not on the jobs, so that policies are compared under
the same failures.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Final

from gpupack_placement import Node
from gpupack_simulator.engine.events import Component
from gpupack_simulator.errors import InvalidParameter


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A failure of a component `at` a time, repaired at `until` (infinity: never)."""

    component: Component
    at: float
    until: float = inf

    def __post_init__(self) -> None:
        if self.at < 0 or not self.until > self.at:
            raise InvalidParameter(
                f"{self.component.device or self.component.node} fails at {self.at:g} and is "
                f"repaired at {self.until:g}: the repair must come later, and both after 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRates:
    """Mean times in the run's unit. Infinity between failures: none."""

    node_between: float = inf
    node_repair: float = 1.0
    gpu_between: float = inf
    gpu_repair: float = 1.0

    def __post_init__(self) -> None:
        means = (self.node_between, self.node_repair, self.gpu_between, self.gpu_repair)
        if not all(mean > 0 for mean in means):
            raise InvalidParameter("mean times between failures and to repair must be positive")

    @property
    def any(self) -> bool:
        """Whether any component can fail."""
        return min(self.node_between, self.gpu_between) < inf


NEVER: Final = FailureRates()


def draw_failures(
    rates: FailureRates, nodes: Iterable[Node], *, until: float, seed: int
) -> list[Breakdown]:
    """Return every failure before `until`, by node and device, then by time."""
    if not rates.any:
        return []
    if until == inf:
        raise InvalidParameter("failure rates need a time at which the run ends (until)")
    return [
        breakdown
        for node in nodes
        for component in (
            Component(node.name),
            *(Component(node.name, d.uuid) for d in node.devices),
        )
        for breakdown in _of_component(rates, component, until, seed)
    ]


def _of_component(
    rates: FailureRates, component: Component, until: float, seed: int
) -> Iterator[Breakdown]:
    between = rates.node_between if component.device is None else rates.gpu_between
    repair = rates.node_repair if component.device is None else rates.gpu_repair
    if between == inf:
        return
    random = Random(f"{seed}:{component.node}:{component.device or ''}")  # noqa: S311  # not for secrets
    at = random.expovariate(1 / between)
    while at < until:
        well = at + random.expovariate(1 / repair)
        yield Breakdown(component, at, well)
        at = well + random.expovariate(1 / between)
