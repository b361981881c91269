# SPDX-License-Identifier: Apache-2.0
"""The holders of GPUs over time: bars if they are few, else the allocation of each GPU."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpupack_placement import WHOLE_GPU, DeviceUuid, FloatArray, Node
from gpupack_simulator.job import JobId, Size
from gpupack_simulator.output.groups import ordered
from gpupack_simulator.output.series import edges
from gpupack_simulator.output.usage import held_percent
from gpupack_simulator.record import Occupancy, Outage, Run, TimeUnit

MAX_ROWS = 64
MAX_BARS = 3000
RASTER_ROWS = 1600
"""Maximum number of rows of the raster; if there are more GPUs, they share rows."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One job on one GPU. `lane`: its position in the row of the GPU, in milli."""

    row: int
    job: JobId
    size: Size
    start: float
    end: float
    lane: int
    milli: int


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The holders of GPUs, one row per GPU, with nodes in the order of groups.ordered.

    Either `bars` or `percent` is given. `percent[row, interval]`: mean allocation of the row's
    `gpus_per_row` GPUs.
    """

    unit: TimeUnit
    ended: float
    nodes: tuple[Node, ...]
    bars: tuple[Bar, ...]
    outages: tuple[tuple[int, float, float], ...]
    """Row, start, end."""
    edges: FloatArray
    percent: FloatArray | None
    gpus_per_row: int


def tenancy(run: Run) -> Tenancy | None:
    """Return the holders of GPUs; None: the run did not record them, or has no GPUs."""
    nodes = tuple(ordered(run.nodes))
    devices = [device.uuid for node in nodes for device in node.devices]
    if not devices or not (run.occupancy or run.outages):
        return None
    rows = {uuid: row for row, uuid in enumerate(devices)}
    grid = edges(run.time_unit, run.ended)
    small = len(devices) <= MAX_ROWS and len(run.occupancy) <= MAX_BARS
    per_row = 1 if small else -(-len(devices) // RASTER_ROWS)
    return Tenancy(
        run.time_unit,
        run.ended,
        nodes,
        _bars(run, rows) if small else (),
        _outages(run, rows) if small else (),
        grid,
        None if small else _raster(run, rows, grid, per_row),
        per_row,
    )


def _bars(run: Run, rows: Mapping[DeviceUuid, int]) -> tuple[Bar, ...]:
    sizes = {record.job.id: record.job.size for record in run.jobs}
    tenants: dict[int, list[Bar]] = {}
    for held_by in sorted(run.occupancy, key=lambda o: (o.start, o.job, o.device)):
        row = rows[held_by.device]
        end = run.ended if held_by.end is None else held_by.end
        lane = _free_lane(tenants.setdefault(row, []), held_by)
        size = sizes.get(held_by.job, Size.ONE)
        bar = Bar(row, held_by.job, size, held_by.start, end, lane, held_by.milli)
        tenants[row].append(bar)
    return tuple(bar for bars in tenants.values() for bar in bars)


def _free_lane(before: list[Bar], new: Occupancy) -> int:
    """Return the lowest gap that is large enough; if there is none, the upper edge."""
    overlapping = sorted((bar.lane, bar.milli) for bar in before if bar.end > new.start)
    lane = 0
    for start, milli in overlapping:
        if start - lane >= new.milli:
            break
        lane = max(lane, start + milli)
    return max(min(lane, WHOLE_GPU - new.milli), 0)


def _outages(run: Run, rows: Mapping[DeviceUuid, int]) -> tuple[tuple[int, float, float], ...]:
    of_node = {node.name: [device.uuid for device in node.devices] for node in run.nodes}
    return tuple(
        (rows[uuid], outage.start, _end(outage, run))
        for outage in run.outages
        for uuid in ([outage.device] if outage.device else of_node[outage.node])
    )


def _end(outage: Outage, run: Run) -> float:
    return run.ended if outage.end is None else outage.end


def _raster(run: Run, rows: Mapping[DeviceUuid, int], grid: FloatArray, per_row: int) -> FloatArray:
    """Return the percent allocated, averaged over the GPUs that share a row."""
    shared = {str(uuid): row // per_row for uuid, row in rows.items()}
    milli = np.zeros((max(shared.values()) + 1, len(grid) - 1))
    found = held_percent(run.occupancy, shared, grid, run.ended)
    milli[: len(found)] = found
    gpus = np.bincount(list(shared.values()), minlength=len(milli))
    percent: FloatArray = 100 * milli / (WHOLE_GPU * gpus)[:, None]
    return percent
