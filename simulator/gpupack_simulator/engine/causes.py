# SPDX-License-Identifier: Apache-2.0
"""The causes of free capacity: every free milli-GPU under one record.Cause.

All free capacity of a node is judged at once against the waiting jobs. The first that holds counts:
a worker fits (so it is held back); it would fit but for CPU and memory; it would fit on the empty
node (so too little is free, or on too many GPUs); it would not fit even then.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from gpupack_devices.units import NO_CPU, NO_MEMORY
from gpupack_placement import BoolArray, Cluster, Request
from gpupack_placement.arrays import takes_work
from gpupack_placement.feasibility import worker_slots
from gpupack_simulator.record import Cause


def free_by_cause(cluster: Cluster, waiting: Iterable[Request]) -> dict[str, int]:
    """Return milli-GPU by cause; the sum is the capacity that is not held.

    `waiting`: one request of each kind.
    """
    a = cluster.arrays
    unused = np.maximum(a.capacity - a.used_milli, 0)
    works = takes_work(a.health) & a.ready[:, None]
    free = (unused * works).sum(axis=1)
    found = {str(Cause.FAILED): int(unused.sum() - free.sum())}
    open_rows = np.ones(len(free), np.bool_)
    for cause, rows in _rows_by_cause(cluster, [r for r in waiting if r.needs_gpu]):
        found[str(cause)] = int(free[open_rows & rows].sum())
        open_rows &= ~rows
    return {cause: milli for cause, milli in found.items() if milli}


def _rows_by_cause(cluster: Cluster, waiting: list[Request]) -> Iterable[tuple[Cause, BoolArray]]:
    """Yield causes with their rows, in the order in which they apply."""
    everywhere = np.ones(len(cluster.arrays.present), np.bool_)
    if not waiting:
        yield Cause.NO_DEMAND, everywhere
        return
    yield Cause.HELD_BACK, _any_fits(cluster, waiting)
    bare = [replace(request, cpu=NO_CPU, memory=NO_MEMORY) for request in waiting]
    yield Cause.STRANDED, _any_fits(cluster, bare)
    yield Cause.FRAGMENTED, _any_fits(cluster.emptied(), waiting)
    yield Cause.WRONG_KIND, everywhere


def _any_fits(cluster: Cluster, requests: Iterable[Request]) -> BoolArray:
    fits = np.zeros(len(cluster.arrays.present), np.bool_)
    for request in requests:
        fits |= worker_slots(cluster, request) > 0
    return fits
