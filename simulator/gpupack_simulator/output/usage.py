# SPDX-License-Identifier: Apache-2.0
"""The allocation of each node, over time and on average.

It is read from samples by node, else from the record of which job held which device, else from the
placements of the jobs that run at the end: from whatever the run recorded.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gpupack_placement import WHOLE_GPU, FloatArray, Node, NodeName
from gpupack_simulator.output.series import Steps, edges
from gpupack_simulator.record import End, Occupancy, Run, TimeUnit

SAMPLES = 400
"""Maximum number of samples by node; more are thinned out."""
CHUNK = 4096


@dataclass(frozen=True, slots=True)
class Usage:
    """The allocation of nodes.

    `percent[node, interval]` of the node's GPUs; a row of NaN: a node without GPUs. `mean` is over
    the measured part of the run; without a clock it is the value at the end.
    """

    nodes: tuple[Node, ...]
    edges: FloatArray
    percent: FloatArray
    mean: FloatArray


def usage(run: Run) -> Usage | None:
    """Return the allocation of nodes; None: the run did not record it, or has no nodes."""
    if not run.nodes:
        return None
    for found in (_from_samples(run), _from_occupancy(run), _from_placements(run)):
        if found is not None:
            return found
    return None


def held_percent(
    occupancy: Iterable[Occupancy], rows: dict[str, int], grid: FloatArray, end: float
) -> FloatArray:
    """Return the mean milli-GPU held in each interval, by row of device.

    Devices that are not in `rows` are left out.
    """
    total = np.zeros((max(rows.values(), default=-1) + 1, len(grid) - 1))
    known = [(rows[o.device], o.start, o.end, o.milli) for o in occupancy if o.device in rows]
    for first in range(0, len(known), CHUNK):
        part = known[first : first + CHUNK]
        index = np.array([row for row, *_ in part])
        starts = np.array([start for _, start, _, _ in part])[:, None]
        ends = np.array([end if stop is None else stop for _, _, stop, _ in part])[:, None]
        shared = np.minimum(grid[1:], ends) - np.maximum(grid[:-1], starts)
        weights = np.array([milli for *_, milli in part])[:, None]
        np.add.at(total, index, np.maximum(shared, 0.0) * weights)
    mean: FloatArray = total / np.diff(grid)
    return mean


def _from_samples(run: Run) -> Usage | None:
    samples = [sample for sample in run.samples if sample.allocated_by_node]
    if not samples:
        return None
    samples = samples[:: -(-len(samples) // SAMPLES)] + samples[-1:]
    names = [node.name for node in run.nodes]
    values = [[sample.allocated_by_node.get(name, 0) for name in names] for sample in samples]
    steps = Steps.of([s.time for s in samples], np.array(values, float), run.ended)
    grid = edges(run.time_unit, run.ended)
    return _usage(run, grid, steps.means(grid).T)


def _from_occupancy(run: Run) -> Usage | None:
    if not run.occupancy:
        return None
    devices = [(d.uuid, row) for row, node in enumerate(run.nodes) for d in node.devices]
    grid = edges(run.time_unit, run.ended)
    return _usage(
        run, grid, _padded(held_percent(run.occupancy, dict(devices), grid, run.ended), run)
    )


def _from_placements(run: Run) -> Usage | None:
    """Return one interval, the end; None if the end does not represent the run."""
    if run.time_unit is not TimeUnit.ARRIVAL:
        return None
    taken: dict[NodeName, int] = {}
    for record in run.jobs:
        for placement in record.placements if record.end is End.RUNNING else ():
            milli = sum(grant.milli for grant in placement.devices)
            taken[placement.node] = taken.get(placement.node, 0) + milli
    column = np.array([[float(taken.get(node.name, 0))] for node in run.nodes])
    return _usage(run, np.array([0.0, max(run.ended, 1.0)]), column)


def _padded(milli: FloatArray, run: Run) -> FloatArray:
    """Add rows for nodes after the last one with a device."""
    missing = len(run.nodes) - len(milli)
    return np.concatenate([milli, np.zeros((missing, milli.shape[1]))])


def _usage(run: Run, grid: FloatArray, milli: FloatArray) -> Usage:
    whole = np.array([WHOLE_GPU * len(node.devices) for node in run.nodes], float)
    whole[whole == 0] = np.nan
    percent = 100 * milli / whole[:, None]
    return Usage(run.nodes, grid, percent, _mean(run, grid, percent))


def _mean(run: Run, grid: FloatArray, percent: FloatArray) -> FloatArray:
    if run.time_unit is TimeUnit.ARRIVAL:
        last: FloatArray = percent[:, -1]
        return last
    weights = np.maximum(grid[1:] - np.maximum(grid[:-1], run.measured_from), 0.0)
    weights = weights * ~np.isnan(percent).all(axis=0)
    if not weights.sum():
        return np.full(len(percent), np.nan)
    mean: FloatArray = np.nan_to_num(percent) @ weights / weights.sum()
    mean[np.isnan(percent).all(axis=1)] = np.nan
    return mean
