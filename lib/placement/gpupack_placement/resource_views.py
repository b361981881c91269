# SPDX-License-Identifier: Apache-2.0
"""Arrays in which nodes that serve several resources have only the GPUs of one.

This concerns the kinds, cliques and capacity of GPUs, their free figures, and the node's sums of
these. All other figures are those of the arrays themselves, including `holders`, which counts all
holders of the node's GPUs.

A decision changes one row, so the arrays are kept by resource, and a row is written again only if
its version has changed. Making them for each decision took 2 ms with 5,000 such nodes, many times
the decision.
"""

from dataclasses import dataclass, replace

import numpy as np

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import ABSENT, MIXED, Arrays, IntArray
from gpupack_placement.memo import ALL, Rows

_OF_DEVICES: dict[str, int] = {
    "kind": ABSENT,
    "clique": ABSENT,
    "capacity": 0,
    "free_milli": 0,
    "free_memory": 0,
    "free_shares": 0,
}
"""The values that replace those of GPUs of other resources."""

_OF_NODES = ("node_kind", "gpus", "idle_gpus", "free_gpu_milli", "version")

_VERSION_BITS = 48
"""Number of version bits; the bits above hold the resource. No count of versions gets that far."""

_NEVER = np.iinfo(np.int64).min
"""A version that no row has."""


@dataclass(slots=True)
class _View:
    source: Arrays
    seen: IntArray
    """By row: the version from which the row was written."""
    arrays: Arrays


class ResourceViews:
    """The narrowed arrays of one cluster, by the number of a resource; not thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[int, _View] = {}

    def of(self, arrays: Arrays, resource: int) -> Arrays:
        """Return the arrays of a resource: read-only, valid until the cluster's arrays change."""
        kept = self._kept.get(resource)
        if kept is None or kept.arrays.shape != arrays.shape:
            kept = _View(arrays, np.full(len(arrays.version), _NEVER), _own(arrays, arrays))
        elif kept.source is not arrays:
            kept = _View(arrays, kept.seen.copy(), _own(arrays, kept.arrays))
        changed = (kept.seen != arrays.version).nonzero()[0]
        if len(changed):
            _write(
                kept.arrays, arrays, ALL if len(changed) * 2 > len(kept.seen) else changed, resource
            )
            kept.seen[changed] = arrays.version[changed]
        self._kept[resource] = kept
        return kept.arrays

    def copy(self) -> "ResourceViews":
        """Return an independent copy."""
        twin = ResourceViews()
        twin._kept = self._kept.copy()
        return twin


def _own(arrays: Arrays, start: Arrays) -> Arrays:
    """Return these arrays with copies of the figures that differ, with their values in `start`."""
    names = (*_OF_DEVICES, *_OF_NODES)
    return replace(arrays, **{name: getattr(start, name).copy(order="K") for name in names})


def _write(view: Arrays, source: Arrays, rows: Rows, resource: int) -> None:
    several = source.node_resource[rows] == MIXED
    others = (source.resource[rows] != resource) & several[:, None]
    for name, fill in _OF_DEVICES.items():
        getattr(view, name)[rows] = np.where(others, fill, getattr(source, name)[rows])
    free = view.free_milli[rows]
    view.node_kind[rows] = _of_all(view.kind[rows])
    view.gpus[rows] = (view.capacity[rows] > 0).sum(axis=1)
    view.idle_gpus[rows] = (free == WHOLE_GPU).sum(axis=1)
    view.free_gpu_milli[rows] = free.sum(axis=1)
    version, part = source.version[rows], (resource + 1) << _VERSION_BITS
    narrowed = np.where(version < 0, version - part, version + part)
    view.version[rows] = np.where(several, narrowed, version)


def _of_all(numbers: IntArray) -> IntArray:
    """Return, by row, the number that all devices have, MIXED or ABSENT.

    Columns without a device do not count.
    """
    largest = numbers.max(axis=1, initial=ABSENT)
    is_alike = (numbers == largest[:, None]) | (numbers == ABSENT)
    return np.where(is_alike.all(axis=1), largest, MIXED)
