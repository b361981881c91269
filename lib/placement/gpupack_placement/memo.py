# SPDX-License-Identifier: Apache-2.0
"""Figures of rows, computed once for each version of a row.

A decision changes one row, so the next decision about the same kind of request needs new figures
only for the rows that changed since the last one. Versions are compared row by row; one number for
«changed since» would be wrong, since overlays share a memo and go back and forth between versions.

Remembered figures are never overwritten, only replaced: a copy starts with all of them at the price
of a dict, and two threads may use a memo and its copy. Writing in place with empty memos for forks
was rejected: each what-if question would begin cold.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpupack_placement.arrays import IntArray

Figures = NDArray[Any]
Rows = IntArray | slice
ALL = slice(None)
"""All rows; if most have changed, slices are read several times faster than lists of rows."""

MAX_KINDS = 512
"""Maximum number of kinds of request; the least recently used goes first."""

MAX_FIGURES = 4_000_000
"""Maximum number of figures in total, at 12 bytes each: fewer kinds if there are many rows."""


_NEVER = np.iinfo(np.int64).min
"""A version that no row has."""


class RowMemo:
    """One figure per row for each kind of request; bounded, not thread-safe."""

    def __init__(self, dtype: type[np.generic], kept: int = MAX_KINDS) -> None:
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
        """Return the figures by row; they never change, and the caller must not change them."""
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
        """Return an independent copy with the same figures."""
        twin = RowMemo(self._dtype, self._kept)
        twin._kinds = self._kinds.copy()
        return twin

    def forget(self) -> None:
        """Forget all figures."""
        self._kinds.clear()

    def _remember(self, kind: Hashable, version: IntArray, figures: Figures) -> None:
        self._kinds[kind] = version, figures
        self._kinds.move_to_end(kind)
        while len(self._kinds) > min(self._kept, 1 + MAX_FIGURES // max(len(version), 1)):
            self._kinds.popitem(last=False)
