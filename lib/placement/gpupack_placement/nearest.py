# SPDX-License-Identifier: Apache-2.0
"""The nearest miss: the smallest reduction of one resource with which a request would fit.

For one worker the arrays give it: for each resource, every node's level is the most of it that a
worker could request there, with all else unchanged. The highest level gives the reduction, and the
nodes of that level are those that would fit. For a gang only a count of its workers shows whether
it fits, so a binary search finds the edge of each resource (fewer is never harder to place).

Reductions of different resources are compared by the fraction of the request that they take away;
ties go by the order of Resource. Nothing is reduced to 0.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from gpupack_devices.units import MiB
from gpupack_placement.arrays import ABSENT, Arrays, BoolArray, IntArray
from gpupack_placement.cluster import Cluster
from gpupack_placement.feasibility import (
    device_slots,
    eligible_devices,
    has_extended,
    idle_of,
    units_of,
    usable,
)
from gpupack_placement.miss import NearestMiss, Resource
from gpupack_placement.request import Request, Share


def nearest_node(cluster: Cluster, request: Request, among: BoolArray) -> NearestMiss | None:
    """Return the nearest miss of one worker that fits on none of these rows."""
    found = nearest_rows(cluster, request, among)
    return found[0] if found else None


def nearest_rows(
    cluster: Cluster, request: Request, among: BoolArray
) -> tuple[NearestMiss, IntArray] | None:
    """Return the nearest miss of one worker, and the rows that would fit."""
    open_ = usable(cluster, request) & has_extended(cluster, request) & among
    rows = np.flatnonzero(open_ & (cluster.arrays.free_pods > 0))
    misses: list[tuple[Fraction, NearestMiss, IntArray]] = []
    for resource, there, level in _levels(cluster, request, rows) if len(rows) else ():
        asked, best = resource.of(request), int(level.max())
        if 0 < best < asked:
            those = there[level == best]
            miss = NearestMiss(resource, asked - best, len(those))
            misses.append((Fraction(asked - best, asked), miss, those))
    return min(misses, key=lambda miss: miss[0])[1:] if misses else None


def nearest_gang(request: Request, fits: Callable[[Request], bool]) -> NearestMiss | None:
    """Return the nearest miss of a gang of such workers; `fits` tests one request."""
    nearest, part = None, Fraction(1)
    for resource in Resource:
        asked = resource.of(request)
        least = 1 + int(asked * (1 - part))
        if asked > least and fits(resource.reduced(request, least)):
            amount = _most(least, asked, lambda n: fits(resource.reduced(request, n)))  # noqa: B023
            nearest = NearestMiss(resource, asked - amount)
            part = Fraction(nearest.less, asked)
    return nearest


def _most(fitting: int, failing: int, fits: Callable[[int], bool]) -> int:
    """Return the largest amount that fits, between one that fits and one that does not."""
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        fitting, failing = (middle, failing) if fits(middle) else (fitting, middle)
    return fitting


def _levels(
    cluster: Cluster, request: Request, rows: IntArray
) -> Iterator[tuple[Resource, IntArray, IntArray]]:
    """Yield a resource, some of these rows, and the most that a worker could request on each."""
    a = cluster.arrays
    enough_cpu, enough_ram = a.free_cpu[rows] >= request.cpu, a.free_ram[rows] >= request.memory
    scarce = rows[~(enough_cpu & enough_ram)]
    if len(scarce):
        for resource, level in _load_levels(cluster, request, scarce):
            yield resource, scarce, level
    near = rows[enough_cpu & enough_ram]
    if not len(near) or not request.needs_gpu:
        return
    if request.share is not None:
        for resource, level in _share_levels(cluster, request, request.share, near):
            yield resource, near, level
    else:
        resource = Resource.MIG_SLICES if request.slices else Resource.GPUS
        yield resource, near, _count_level(cluster, request, near)
    if request.min_memory:
        yield Resource.GPU_MEMORY, near, _size_level(cluster, request, near)


def _load_levels(
    cluster: Cluster, request: Request, rows: IntArray
) -> Iterator[tuple[Resource, IntArray]]:
    a, placeable = cluster.arrays, device_slots(cluster, request, rows) > 0
    cpu, ram = a.free_cpu[rows], a.free_ram[rows]
    yield Resource.CPU, cpu * (placeable & (ram >= request.memory))
    yield Resource.MEMORY, ram * (placeable & (cpu >= request.cpu))


def _share_levels(
    cluster: Cluster, request: Request, share: Share, rows: IntArray
) -> Iterator[tuple[Resource, IntArray]]:
    a, eligible = cluster.arrays, eligible_devices(cluster, request, at=rows)
    milli, memory, open_ = a.free_milli[rows], a.free_memory[rows], a.free_shares[rows] > 0
    open_ = open_ if eligible is None else open_ & eligible
    yield Resource.SHARE, _highest(milli * (open_ & (memory >= share.memory)))
    if share.memory:
        yield Resource.SHARE_MEMORY, _highest(memory * (open_ & (milli >= share.milli)))


def _count_level(cluster: Cluster, request: Request, rows: IntArray) -> IntArray:
    a, eligible = cluster.arrays, eligible_devices(cluster, request, at=rows)
    idle = idle_of(a, request, eligible, at=rows)
    if not request.needs_clique:
        return _count(idle)
    one = _highest(idle)  # one GPU needs no link
    in_cliques = (_count(idle & linked) for linked in _cliques(a, rows))
    return _highest_of(one, *in_cliques)


def _size_level(cluster: Cluster, request: Request, rows: IntArray) -> IntArray:
    """Return, per row, the largest memory size that enough free GPUs have."""
    a, any_size = cluster.arrays, replace(request, min_memory=MiB(0))
    eligible = eligible_devices(cluster, any_size, at=rows)
    memory = a.memory[rows] * (units_of(a, any_size, eligible, at=rows) > 0)
    if not request.needs_clique:
        return _nth_largest(memory, request.devices)
    of_cliques = (_nth_largest(memory * linked, request.devices) for linked in _cliques(a, rows))
    return _highest_of(np.zeros(len(rows), np.int64), *of_cliques)


def _cliques(a: Arrays, rows: IntArray) -> Iterator[BoolArray]:
    """Yield the devices of each NVLink clique."""
    numbers = a.clique[rows]
    return (numbers == clique for clique in range(int(numbers.max(initial=ABSENT)) + 1))


def _nth_largest(per_device: IntArray, number: int) -> IntArray:
    columns = per_device.shape[1]
    if number > columns:
        return np.zeros(len(per_device), np.int64)
    return np.partition(per_device, columns - number, axis=1)[:, columns - number]


def _highest_of(*levels: IntArray) -> IntArray:
    highest: IntArray = np.maximum.reduce(levels)
    return highest


def _highest(per_device: IntArray | BoolArray) -> IntArray:
    highest: IntArray = per_device.max(axis=1, initial=0)
    return highest


def _count(per_device: BoolArray) -> IntArray:
    count: IntArray = np.add.reduce(per_device, axis=1, dtype=np.int64)
    return count
