# SPDX-License-Identifier: Apache-2.0
"""Labels, taints and model names as vectors.

Strings are judged once per distinct value (models, taint sets) or once per node and selector,
never once per decision. A selector's vector is kept and corrected row by row when a node
changes; only the last few selectors are kept, since users' pods bring new ones without end.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np

from gpupack_core.arrays import BoolArray
from gpupack_core.model import Node, Taint
from gpupack_core.models import matches_model
from gpupack_core.selector import NodeSelector, Toleration, tolerates_all
from gpupack_core.table import Table

_KEPT = 64


class SelectorMasks:
    """For each selector asked of late: which rows it matches."""

    def __init__(self) -> None:
        self._masks: OrderedDict[NodeSelector, BoolArray] = OrderedDict()

    def of(self, selector: NodeSelector, nodes: Sequence[Node | None]) -> BoolArray:
        """One truth value per row; `nodes` are the nodes of the rows."""
        mask = self._masks.get(selector)
        if mask is None:
            mask = self._masks[selector] = _matches(selector, nodes)
            if len(self._masks) > _KEPT:
                self._masks.popitem(last=False)
        self._masks.move_to_end(selector)
        return mask

    def correct(self, row: int, node: Node | None) -> None:
        """The node of this row changed."""
        for selector, mask in self._masks.items():
            mask[row] = node is not None and selector.matches(node)

    def forget(self) -> None:
        """The number of rows changed."""
        self._masks.clear()


def models_mask(models: Iterable[str], table: Table[str]) -> BoolArray:
    """Which model names are one of the models asked for."""
    return table.where(lambda model: any(matches_model(asked, model) for asked in models))


def tolerated_mask(
    tolerations: tuple[Toleration, ...], table: Table[tuple[Taint, ...]]
) -> BoolArray:
    """Which taint sets keep a pod with these tolerations away from nothing."""
    return table.where(lambda taints: tolerates_all(tolerations, taints))


def _matches(selector: NodeSelector, nodes: Sequence[Node | None]) -> BoolArray:
    found = (node is not None and selector.matches(node) for node in nodes)
    return np.fromiter(found, np.bool_, len(nodes))
