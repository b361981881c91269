# SPDX-License-Identifier: Apache-2.0
"""The part of a run that is kept for tables and plots: small enough to keep hundreds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpupack_placement import FloatArray
from gpupack_simulator.job import Size
from gpupack_simulator.output import capacity
from gpupack_simulator.output.figures import Figures, figures
from gpupack_simulator.output.series import Steps
from gpupack_simulator.output.tenancy import Tenancy, tenancy
from gpupack_simulator.output.usage import Usage, usage
from gpupack_simulator.output.waits import wait_times
from gpupack_simulator.record import Run, TimeUnit

POINTS = 2000
"""Maximum number of changes of a series; longer ones are averaged over this many intervals."""


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of one run. `usage` and `tenancy` None: not recorded, or not wanted."""

    policy: str
    seed: int
    parameters: Mapping[str, str | int | float | bool]
    unit: TimeUnit
    nodes: int
    gpus: int
    measured_from: float
    ended: float
    figures: Figures
    arrived: Steps
    """Percent of capacity, like allocation and fragmentation."""
    allocation: Steps
    fragmentation: Steps
    queue: Steps
    waits: Mapping[Size, FloatArray]
    usage: Usage | None
    tenancy: Tenancy | None


def digest(run: Run, *, pictures: bool = True) -> Digest:
    """Make the digest of a run; `pictures`: keep what the plots of single nodes and GPUs need."""
    return Digest(
        policy=run.policy,
        seed=run.seed,
        parameters=dict(run.parameters),
        unit=run.time_unit,
        nodes=len(run.nodes),
        gpus=sum(len(node.devices) for node in run.nodes),
        measured_from=run.measured_from,
        ended=run.ended,
        figures=figures(run),
        arrived=_thinned(capacity.arrived(run)),
        allocation=_thinned(capacity.allocation(run)),
        fragmentation=_thinned(capacity.fragmentation(run)),
        queue=_thinned(capacity.queue(run)),
        waits=wait_times(run),
        usage=usage(run) if pictures else None,
        tenancy=tenancy(run) if pictures else None,
    )


def _thinned(steps: Steps) -> Steps:
    if len(steps.times) <= POINTS:
        return steps
    grid = np.linspace(steps.times[0], steps.end, POINTS + 1)
    return Steps.of(list(grid[:-1]), steps.means(grid), steps.end)
