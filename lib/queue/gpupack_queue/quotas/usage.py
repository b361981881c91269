# SPDX-License-Identifier: Apache-2.0
"""Usage by tenant and cohort, what is left for them, and their shares.

    borrowed(node) = used - promised, 0 where it is less
    share(node)    = the largest borrowed / capacity over the keys, divided by the weight

The share is a dominant share (Ghodsi et al., «Dominant Resource Fairness», NSDI '11) of what is
lent: it is 0 within the nominal quota. A tenant counts in its cohort with what exceeds the amount
that it never lends.

Amounts are added and subtracted exactly, so a what-if question needs no copy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from gpupack_queue.charge import Charge, ModelKey
from gpupack_queue.job import Tenant
from gpupack_queue.quotas.tree import NodeId, Tree, TreeNode


@dataclass(slots=True)
class Usage:
    """Milli-GPU by node of a tree; mutable; an average over time has fractions."""

    tree: Tree
    _used: dict[NodeId, dict[ModelKey, float]] = field(default_factory=dict)

    def copy(self, tree: Tree) -> "Usage":
        """Return the same usage for a copy of the tree."""
        return Usage(tree, {of: used.copy() for of, used in self._used.items()})

    def used_by(self, node: TreeNode) -> Mapping[ModelKey, float]:
        """Return what counts against the node's guaranteed quota."""
        return self._used.get(node.id, {})

    def add(self, tenant: Tenant, charge: Mapping[ModelKey, float], *, sign: float = 1) -> None:
        """Add what the tenant uses; `sign` -1: subtract it."""
        leaf = self.tree.tenant(tenant)
        for key, milli in charge.items():
            self._add(leaf, key, sign * milli)

    def _add(self, node: TreeNode, key: ModelKey, change: float) -> None:
        above: TreeNode | None = node
        while above is not None and change:
            used = self._used.setdefault(above.id, {})
            before = used.get(key, 0)
            used[key] = before + change
            kept = above.never_lent(key) if above.limits else 0
            change = max(used[key] - kept, 0) - max(before - kept, 0)
            above = above.parent

    def available(self, node: TreeNode, key: ModelKey) -> float:
        """Return how much more the node may use; negative: it uses more than it may now."""
        used, promised = self._used.get(node.id, {}).get(key, 0), node.guaranteed.get(key, 0)
        if node.parent is None:
            return promised - used
        above = min(self.available(node.parent, key), self.within_borrowing_limit(node, key))
        return max(node.never_lent(key) - used, 0) + above

    def within_borrowing_limit(self, node: TreeNode, key: ModelKey) -> float:
        """Return how much more than its own unlent part it may use by its borrowing limit."""
        borrowing = node.limit(key).borrowing
        if borrowing is None:
            return inf
        used, kept = self._used.get(node.id, {}).get(key, 0), node.never_lent(key)
        return node.guaranteed.get(key, 0) - kept - max(used - kept, 0) + borrowing

    def fits(self, tenant: Tenant, charge: Charge) -> bool:
        """Tell whether the tenant may use this much more."""
        leaf = self.tree.tenant(tenant)
        return all(self.available(leaf, key) >= milli for key, milli in charge.items() if milli)

    def borrowed(self, node: TreeNode, key: ModelKey) -> float:
        """Return how much of the key it uses beyond its guaranteed quota."""
        used = self._used.get(node.id, {}).get(key, 0)
        return max(used - node.guaranteed.get(key, 0), 0)

    def share(self, node: TreeNode) -> float:
        """Return its share: that of the model with the largest share."""
        keys = self._used.get(node.id, ())
        return max((self.share_of(node, key) for key in keys), default=0.0)

    def share_of(self, node: TreeNode, key: ModelKey) -> float:
        """Return its share of one model: what it borrows of the capacity, divided by its weight."""
        borrowed, capacity = self.borrowed(node, key), self.tree.capacity.get(key, 0)
        if not borrowed:
            return 0.0
        return borrowed / capacity / node.weight if capacity and node.weight else inf

    def shares(self, tenant: Tenant) -> tuple[float, ...]:
        """Return the shares from the root's child down to the tenant; the smaller goes first."""
        path = self.tree.tenant(tenant).path
        return tuple(self.share(self.tree.node(of)) for of in path)
