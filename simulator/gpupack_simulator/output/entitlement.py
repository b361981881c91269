# SPDX-License-Identifier: Apache-2.0
"""The GPUs that each tenant is entitled to at one moment: weighted max-min fairness.

The capacity flows from the root of the quotas' tree down. At each node its children first get their
quotas, as far as they request them. The rest goes to those that request more, in proportion to
weight, and no child gets more than it requests (progressive filling: Bertsekas and Gallager, «Data
Networks», 2nd ed., 6.5.2). Children of weight 0 get what is left over.

Only numbers of GPUs count: models and limits of lending and borrowing are ignored.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from gpupack_placement import FloatArray
from gpupack_queue import Quotas, Tenant
from gpupack_queue.quotas.tree import TOP, NodeId, Tree, TreeNode


class Entitlement:
    """The entitlements of tenants under quotas; all amounts, quotas too, are in one unit."""

    def __init__(self, quotas: Quotas, tenants: Sequence[str]) -> None:
        tree = Tree(quotas, {})
        leaves = [tree.tenant(Tenant(tenant)) for tenant in tenants]
        self._columns = {leaf.id: number for number, leaf in enumerate(leaves)}
        self._below: dict[NodeId, list[TreeNode]] = {}
        for of in dict.fromkeys(of for leaf in leaves for of in leaf.path):
            node = tree.node(of)
            above = TOP if node.parent is None else node.parent.id
            self._below.setdefault(above, []).append(node)

    def of(self, capacity: float, demand: FloatArray) -> FloatArray:
        """Return the entitlements by tenant; `demand`: all that each requests, held or not."""
        asked = self._asked(demand)
        rights = np.zeros(len(demand))
        self._divide(TOP, capacity, asked, rights)
        return rights

    def _asked(self, demand: FloatArray) -> dict[NodeId, float]:
        """Return the demand below each node of the tree."""
        asked: dict[NodeId, float] = {of: float(demand[n]) for of, n in self._columns.items()}

        def add_up(of: NodeId) -> float:
            below = self._below.get(of)
            if below is not None:
                asked[of] = sum(add_up(node.id) for node in below)
            return asked.get(of, 0.0)

        add_up(TOP)
        return asked

    def _divide(
        self, of: NodeId, amount: float, asked: Mapping[NodeId, float], rights: FloatArray
    ) -> None:
        children = self._below.get(of)
        if children is None:
            rights[self._columns[of]] = amount
            return
        wants = np.array([asked[child.id] for child in children])
        guaranteed = np.array([float(sum(child.guaranteed.values())) for child in children])
        first = water_fill(amount, np.minimum(wants, guaranteed), guaranteed)
        rest = max(amount - float(first.sum()), 0.0)
        weights = np.array([child.weight for child in children])
        parts = first + water_fill(rest, wants - first, weights)
        for child, part in zip(children, parts.tolist(), strict=True):
            self._divide(child.id, part, asked, rights)


def water_fill(amount: float, wants: FloatArray, weights: FloatArray) -> FloatArray:
    """Divide an amount: each gets weight times a common level, at most what it wants.

    Those of weight 0 divide what is left.
    """
    weighing = weights > 0
    parts = np.zeros(len(wants))
    parts[weighing] = _water_level(amount, wants[weighing], weights[weighing])
    rest = amount - float(parts.sum())
    if rest > 0 and not weighing.all():
        parts[~weighing] = _water_level(rest, wants[~weighing], np.ones(int((~weighing).sum())))
    return parts


def _water_level(amount: float, wants: FloatArray, weights: FloatArray) -> FloatArray:
    if not len(wants) or wants.sum() <= amount:
        return wants
    order = np.argsort(wants / weights, kind="stable")
    heights = (wants / weights)[order]
    done = np.concatenate([[0.0], np.cumsum(wants[order])[:-1]])
    behind = np.cumsum(weights[order][::-1])[::-1]
    levels = (amount - done) / behind
    level = float(levels[int(np.argmax(levels <= heights))])
    parts: FloatArray = np.minimum(wants, weights * level)
    return parts
