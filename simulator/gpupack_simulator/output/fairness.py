# SPDX-License-Identifier: Apache-2.0
"""Fairness of the division of GPUs among tenants, over time.

In each window of time a tenant's x is the GPU-time that it had, divided by the GPU-time that it was
entitled to (output/entitlement.py). The index of a window is Jain's, (Σx)² / (n Σx²), over the n
tenants with an entitlement: 1 if all got the same fraction of it, 1/n if one got all.

Source: Jain, Chiu, Hawe, «A Quantitative Measure of Fairness and Discrimination for Resource
Allocation in Shared Computer Systems» (DEC-TR-301, 1984).

A window in which fewer than two tenants request GPUs has no index and is left out. Lost work counts
as GPU-time that the tenant had.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpupack_placement import FloatArray, IntArray
from gpupack_queue import Quotas
from gpupack_simulator.output.entitlement import Entitlement
from gpupack_simulator.record import End, JobRecord, Run

WINDOWS = 60
CELLS = 3000
"""Maximum number of moments for which entitlements are computed; longer runs are averaged over
cells."""


@dataclass(frozen=True, slots=True)
class Fairness:
    """The GPU-time of tenants in windows.

    `edges` of the windows; `had` and `right` by window and tenant, in milli-GPU times time.
    """

    tenants: tuple[str, ...]
    edges: FloatArray
    received: FloatArray
    entitled: FloatArray

    @property
    def index(self) -> FloatArray:
        """Jain's index by window; NaN: the window has none."""
        asking = self.entitled > 0
        parts = np.divide(
            self.received, self.entitled, out=np.zeros_like(self.received), where=asking
        )
        squares = asking.sum(axis=1) * (parts**2).sum(axis=1)
        defined = (asking.sum(axis=1) > 1) & (squares > 0)
        index = np.full(len(parts), np.nan)
        index[defined] = parts.sum(axis=1)[defined] ** 2 / squares[defined]
        return index

    @property
    def mean(self) -> float | None:
        """Mean over the windows with an index; None: there is none."""
        known = self.index[~np.isnan(self.index)]
        return float(known.mean()) if len(known) else None


def fairness(run: Run, quotas: Quotas, *, capacity: float, until: float | None = None) -> Fairness:
    """Return the fairness under these quotas.

    `capacity`: milli-GPU; `until`: the end of the last window.
    """
    records = [r for r in run.jobs if r.job.milli and r.end is not End.DROPPED]
    tenants = tuple(sorted({record.job.tenant for record in records}))
    end = run.ended if until is None else until
    edges = np.linspace(run.measured_from, max(end, run.measured_from + 1e-9), WINDOWS + 1)
    if not tenants:
        none = np.zeros((WINDOWS, 0))
        return Fairness(tenants, edges, none, none)
    column = {tenant: number for number, tenant in enumerate(tenants)}
    asked, used = _Changes(), _Changes()
    lost = _lost(run)
    for record in records:
        at, milli = column[record.job.tenant], float(record.job.milli)
        asked.add(record.submitted, _end(record, run), at, milli)
        for start, stop in _attempts(record, run, lost.get(record.job.id, [])):
            used.add(start, stop, at, milli)
    cells = _cells(np.concatenate([asked.times(), used.times()]), edges)
    demand, had = (changes.means(cells, len(tenants)) for changes in (asked, used))
    entitlement = Entitlement(quotas, tenants)
    rights = np.array([entitlement.of(capacity, row) for row in demand])
    widths = np.diff(cells)[:, None]
    window = np.clip(np.searchsorted(edges, cells[:-1], side="right") - 1, 0, WINDOWS - 1)
    return Fairness(tenants, edges, _summed(had * widths, window), _summed(rights * widths, window))


def _summed(values: FloatArray, window: IntArray) -> FloatArray:
    total = np.zeros((WINDOWS, values.shape[1]))
    np.add.at(total, window, values)
    return total


def _cells(times: FloatArray, edges: FloatArray) -> FloatArray:
    """Return cells between every two changes, or equal steps if there are too many changes."""
    inside = np.unique(times[(times > edges[0]) & (times < edges[-1])])
    if len(inside) > CELLS:
        inside = np.linspace(edges[0], edges[-1], CELLS + 1)
    return np.unique(np.concatenate([edges, inside]))


def _end(record: JobRecord, run: Run) -> float:
    return run.ended if record.ended is None else record.ended


def _lost(run: Run) -> dict[str, list[tuple[float, float]]]:
    """Return the attempts of each job that were cut short: start and end."""
    milli = {record.job.id: float(record.job.milli) for record in run.jobs}
    found: dict[str, list[tuple[float, float]]] = {}
    for loss in run.losses:
        if milli[loss.job]:
            start = loss.time - loss.milli_time / milli[loss.job]
            found.setdefault(loss.job, []).append((start, loss.time))
    return found


def _attempts(
    record: JobRecord, run: Run, lost: list[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """Yield the start and end of each time in which the job held its GPUs."""
    yield from lost
    if record.started is not None and record.attempts > len(lost):
        yield record.started, _end(record, run)


class _Changes:
    """Amounts that are valid from one time to another, by column."""

    def __init__(self) -> None:
        self._changes: list[tuple[float, int, float]] = []

    def add(self, start: float, stop: float, column: int, amount: float) -> None:
        """Add an amount between two times."""
        self._changes += [(start, column, amount), (stop, column, -amount)]

    def times(self) -> FloatArray:
        """Return the times at which something changes."""
        return np.array([time for time, _, _ in self._changes], float)

    def means(self, cells: FloatArray, columns: int) -> FloatArray:
        """Return the exact means over each cell, by column."""
        areas = np.zeros((len(cells), columns))
        if not self._changes:
            return areas[1:]
        times = self.times()
        which = np.array([column for _, column, _ in self._changes])
        amounts = np.array([amount for _, _, amount in self._changes], float)
        for column in range(columns):
            order = np.argsort(times[which == column], kind="stable")
            at, by = times[which == column][order], amounts[which == column][order]
            so_far, weighted = (
                np.concatenate([[0.0], np.cumsum(by)]),
                np.concatenate([[0.0], np.cumsum(by * at)]),
            )
            rows = np.searchsorted(at, cells, side="right")
            areas[:, column] = so_far[rows] * cells - weighted[rows]
        means: FloatArray = np.diff(areas, axis=0) / np.diff(cells)[:, None]
        return np.maximum(means, 0.0)
