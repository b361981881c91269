# SPDX-License-Identifier: Apache-2.0
"""Figures of rows, worked out once for each version of a row.

A decision changes one row, so the next decision about the same kind of request needs new figures
for the rows that changed since the last one, and no others. Versions are compared row by row; one
number for «changed since» would be wrong, since overlays share a memo and go back and forth
between versions.

What has once been remembered is never written over, only replaced: a copy starts with all of it at
the price of a dict, and two threads may ask a memo and its copy. To write in place and give forks
empty memos was rejected: each what-if question would begin cold.
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

KEPT = 512
"""Kinds of request; the one not asked for the longest goes first."""

FIGURES = 4_000_000
"""As many in all, at 12 bytes each: fewer kinds where there are many rows."""


_NEVER = np.iinfo(np.int64).min
"""The version of no row."""


class RowMemo:
    """One figure per row for each kind of request; bounded, not thread-safe."""

    def __init__(self, dtype: type[np.generic], kept: int = KEPT) -> None:
        self._dtype, self._kept = dtype, kept
        self._kinds: OrderedDict[Hashable, tuple[IntArray, Figures]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kinds)

    def of(
        self,
        kind: Hashable,
        version: IntArray,
        compute: Callable[[Rows], Figures],
        among: IntArray | None = None,
    ) -> Figures:
        """By row; the caller must not change the answer, nor does anybody else later.

        `compute` gives the figures of some rows and may depend on those rows and `kind` alone.
        `among`: the rows that are asked about, each once; the figures of others are of no account.
        Where few have room for a request, that leaves out nearly all that have changed.
        """
        entry = self._kinds.get(kind)
        if entry is None or len(entry[0]) != len(version):
            entry = np.full(len(version), _NEVER), np.zeros(len(version), self._dtype)
        seen, figures = entry
        stale = seen != version
        changed = stale.nonzero()[0] if among is None else among[stale[among]]
        if not len(changed):
            self._remember(kind, seen, figures)
            return figures
        if len(changed) * 2 > len(figures):
            figures, seen = compute(ALL).astype(self._dtype), version.copy()
        else:
            figures, seen = figures.copy(), seen.copy()
            figures[changed] = compute(changed)
            seen[changed] = version[changed]
        self._remember(kind, seen, figures)
        return figures

    def copy(self) -> "RowMemo":
        """The same figures; what either learns from now on the other does not see."""
        twin = RowMemo(self._dtype, self._kept)
        twin._kinds = self._kinds.copy()
        return twin

    def forget(self) -> None:
        """All of it."""
        self._kinds.clear()

    def _remember(self, kind: Hashable, version: IntArray, figures: Figures) -> None:
        self._kinds[kind] = version, figures
        self._kinds.move_to_end(kind)
        while len(self._kinds) > min(self._kept, 1 + FIGURES // max(len(version), 1)):
            self._kinds.popitem(last=False)
