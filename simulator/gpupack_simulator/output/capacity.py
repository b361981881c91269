# SPDX-License-Identifier: Apache-2.0
"""Allocation, fragmentation and demand, in percent of the GPU capacity of all devices."""

from collections.abc import Callable, Sequence

from gpupack_placement import WHOLE_GPU, Node
from gpupack_simulator.output.series import Steps
from gpupack_simulator.record import Run, Sample


def allocation(run: Run) -> Steps:
    """Return the allocated capacity over time."""
    return _percent(run, lambda sample: sample.allocated_milli)


def arrived(run: Run) -> Steps:
    """Return the capacity that all jobs so far have requested, over time."""
    return _percent(run, lambda sample: sample.arrived_milli)


def fragmentation(run: Run) -> Steps:
    """Return FGD's measure over time: free capacity that a job of the expected mix cannot use."""
    return _percent(run, lambda sample: sample.fragmented_milli)


def queue(run: Run) -> Steps:
    """Return the number of waiting jobs over time."""
    samples = run.samples
    return Steps.of([s.time for s in samples], [s.queued_jobs for s in samples], run.ended)


def allocation_at_demand(run: Run, percent: float) -> float | None:
    """Return the percent allocated at the first sample with this demand; None: it never came."""
    for sample in run.samples:
        if sample.arrived_milli * 100 >= percent * sample.capacity_milli > 0:
            return 100 * sample.allocated_milli / sample.capacity_milli
    return None


def milli(nodes: Sequence[Node]) -> int:
    """Return the capacity of all devices, including failed ones."""
    return WHOLE_GPU * sum(len(node.devices) for node in nodes)


def _percent(run: Run, value: Callable[[Sample], int | None]) -> Steps:
    """Return percent of the capacity; samples without the value or without GPUs are left out."""
    known = [
        (sample.time, 100 * found / sample.capacity_milli)
        for sample in run.samples
        if (found := value(sample)) is not None and sample.capacity_milli
    ]
    return Steps.of([time for time, _ in known], [percent for _, percent in known], run.ended)
