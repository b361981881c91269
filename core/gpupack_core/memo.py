# SPDX-License-Identifier: Apache-2.0
"""Figures of rows, worked out once for each version of a row.

A decision changes one row, so the next decision about the same kind of request needs new figures
for the rows that changed since the last one, and no others. Versions are compared row by row; one
number for «changed since» would be wrong, since overlays and forks share a memo and go back and
forth between versions.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpupack_core.arrays import IntArray

Figures = NDArray[Any]
Rows = IntArray | slice
ALL = slice(None)
"""Every row: where most have changed, slices are read several times faster than lists of rows."""

_UNSEEN = np.iinfo(np.int64).min

KEPT = 512
"""Kinds of request; the one not asked for the longest goes first."""

FIGURES = 4_000_000
"""As many in all, at 12 bytes each: fewer kinds where there are many rows."""


class RowMemo:
    """One figure per row for each kind of request; bounded, not thread-safe."""

    def __init__(self, dtype: type[np.generic], kept: int = KEPT) -> None:
        self._dtype, self._kept = dtype, kept
        self._kinds: OrderedDict[Hashable, tuple[IntArray, Figures]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kinds)

    def of(self, kind: Hashable, version: IntArray, compute: Callable[[Rows], Figures]) -> Figures:
        """For every row; the caller must not change the answer.

        `compute` gives the figures of some rows and may depend on those rows and `kind` alone.
        """
        seen, figures = self._entry(kind, len(version))
        changed = (seen != version).nonzero()[0]
        if len(changed) * 2 > len(version):
            figures[:], seen[:] = compute(ALL), version
        elif len(changed):
            figures[changed] = compute(changed)
            seen[changed] = version[changed]
        return figures

    def forget(self) -> None:
        """All of it."""
        self._kinds.clear()

    def _entry(self, kind: Hashable, rows: int) -> tuple[IntArray, Figures]:
        entry = self._kinds.get(kind)
        if entry is None or len(entry[0]) != rows:
            entry = np.full(rows, _UNSEEN, np.int64), np.zeros(rows, self._dtype)
            self._kinds[kind] = entry
            while len(self._kinds) > min(self._kept, 1 + FIGURES // max(rows, 1)):
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(kind)
        return entry
