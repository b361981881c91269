# SPDX-License-Identifier: Apache-2.0
"""Arrays in which nodes that serve several resources have the GPUs of one alone.

That is so of GPUs' kinds, cliques and capacity, of what is free of them, and of the node's sums of
these. All else is that of the arrays themselves, `holders` too: whoever holds GPUs of the node.

A decision changes one row, so they are kept by resource and written anew where a row's version is
another. To make them for each decision cost 2 ms with 5,000 such nodes, many times the decision.
"""

from dataclasses import dataclass, replace

import numpy as np

from gpupack_core.arrays import ABSENT, MIXED, Arrays, IntArray
from gpupack_core.memo import ALL, Rows
from gpupack_core.units import WHOLE_GPU

_OF_DEVICES: dict[str, int] = {
    "kind": ABSENT,
    "clique": ABSENT,
    "capacity": 0,
    "free_milli": 0,
    "free_memory": 0,
    "free_shares": 0,
}
"""What stands in their places for GPUs of other resources."""

_OF_NODES = ("node_kind", "gpus", "idle_gpus", "free_gpu_milli", "version")

_VERSION_BITS = 48
"""Above these the version of a row has the resource as well; nobody counts as far."""

_NEVER = np.iinfo(np.int64).min
"""The version of no row."""


@dataclass(slots=True)
class _View:
    source: Arrays
    seen: IntArray
    """By row: the version that it was written from."""
    arrays: Arrays


class NarrowedViews:
    """Of one cluster, by the number of a resource; not thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[int, _View] = {}

    def of(self, arrays: Arrays, resource: int) -> Arrays:
        """To be read, until the arrays change."""
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

    def copy(self) -> "NarrowedViews":
        """What is written into either from now on is not seen by the other."""
        twin = NarrowedViews()
        twin._kept = self._kept.copy()
        return twin


def _own(arrays: Arrays, start: Arrays) -> Arrays:
    """These arrays with copies of what differs, as it is at the start."""
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
    """By row: the number that all devices have, MIXED or ABSENT; those without one do not count."""
    largest = numbers.max(axis=1, initial=ABSENT)
    is_alike = (numbers == largest[:, None]) | (numbers == ABSENT)
    return np.where(is_alike.all(axis=1), largest, MIXED)
