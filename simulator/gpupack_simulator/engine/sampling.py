# SPDX-License-Identifier: Apache-2.0
"""When the cluster is looked at, and at what."""

from dataclasses import dataclass
from math import inf

from gpupack_simulator.errors import InvalidParameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """At least one of the three says when. What costs a pass over the nodes is off by default."""

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
