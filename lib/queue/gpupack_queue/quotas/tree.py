# SPDX-License-Identifier: Apache-2.0
"""What each quota and cohort is guaranteed together with all below it.

    promised(node)   = its own nominal amount + what its children lend to it
    kept(node)       = the part of it that is never lent: promised - lending limit
    own nominal of ROOT = capacity of the cluster - all that is promised below it

Where no node has a lending limit of a model, the root does not limit it: the free GPUs do, which is
exact. Shares that count by their memory can add up to more than there is.

Tenants are leaves. A tenant without a quota gets a leaf at its first use.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Final, NewType

from gpupack_queue.charge import Charge, ModelKey, ModelKeys
from gpupack_queue.job import Tenant
from gpupack_queue.quotas.quota import ROOT, Cohort, CohortName, Limit, Quotas
from gpupack_queue.rules import OrderPolicy

NodeId = NewType("NodeId", str)
"""«cohort/NAME» or «tenant/NAME»."""

TOP: Final = NodeId("cohort/")
UNBOUNDED: Final = 1 << 60
_UNLIMITED: Final = Limit()


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A cohort or a tenant, with amounts in milli-GPU by key.

    `path` goes from the child of TOP down to the node itself.
    """

    id: NodeId
    parent: "TreeNode | None"
    limits: Mapping[ModelKey, Limit]
    weight: float
    path: tuple[NodeId, ...]
    guaranteed: dict[ModelKey, int] = field(default_factory=dict)
    order: OrderPolicy | None = None
    min_runtime_seconds: float | None = None
    max_runtime_seconds: float | None = None

    @property
    def name(self) -> str:
        """Return the name of the cohort or the namespace."""
        return self.id.partition("/")[2]

    @property
    def is_tenant(self) -> bool:
        """Tell whether it is a namespace."""
        return self.id.startswith("tenant/")

    def limit(self, key: ModelKey) -> Limit:
        """Return the limit of the model; without one nothing is guaranteed and nothing limited."""
        return self.limits.get(key, _UNLIMITED)

    def never_lent(self, key: ModelKey) -> int:
        """Return the amount that is never lent."""
        lending = self.limit(key).lending
        return 0 if lending is None else max(self.guaranteed.get(key, 0) - lending, 0)


class Tree:
    """The tree of one set of quotas, with one capacity."""

    def __init__(self, quotas: Quotas, capacity: Charge) -> None:
        self.quotas, self.keys = quotas, ModelKeys(quotas.keys())
        self._cohorts = {cohort.name: cohort for cohort in quotas.cohorts}
        self._quotas = {quota.tenant: quota for quota in quotas.quotas}
        self._nodes: dict[NodeId, TreeNode] = {}
        top = self._nodes[TOP] = TreeNode(TOP, None, {}, 1.0, ())
        for cohort in quotas.cohorts:
            self._cohort(cohort.name)
        for quota in quotas.quotas:
            self.tenant(quota.tenant)
        below = self._add_up()
        self.capacity: dict[ModelKey, int] = {}
        with_lending_limit = {
            key
            for node in self._nodes.values()
            for key, at in node.limits.items()
            if at.lending is not None
        }
        for key in {*below, *capacity, *self.keys.all()}:
            not_guaranteed = max(capacity.get(key, 0) - below.get(key, 0), 0)
            own = not_guaranteed if key in with_lending_limit else UNBOUNDED
            top.guaranteed[key] = top.guaranteed.get(key, 0) + own
            self.capacity[key] = max(capacity.get(key, 0), below.get(key, 0))

    def copy(self) -> "Tree":
        """Return a copy with the same nodes; either can add leaves without the other."""
        twin = copy(self)
        vars(twin).update(_nodes=self._nodes.copy())
        return twin

    @property
    def top(self) -> TreeNode:
        """Return the root: the cluster."""
        return self._nodes[TOP]

    def tenant(self, name: Tenant) -> TreeNode:
        """Return the namespace's leaf."""
        leaf = self._nodes.get(NodeId(f"tenant/{name}"))
        if leaf is None:
            quota = self._quotas.get(name, self.quotas.default)
            parent = self._cohort(quota.cohort)
            leaf = self._add(NodeId(f"tenant/{name}"), parent, quota.limits, quota.weight)
            leaf.guaranteed.update({key: at.nominal for key, at in quota.limits.items()})
        return leaf

    def node(self, of: NodeId) -> TreeNode:
        """Return the node with this ID."""
        return self._nodes[of]

    def diverging_nodes(self, one: Tenant, other: Tenant) -> tuple[TreeNode, TreeNode]:
        """Return the node of each tenant at which their paths part, below the last common one."""
        paths = zip(self.tenant(one).path, self.tenant(other).path, strict=False)
        first, second = next((mine, its) for mine, its in paths if mine != its)
        return self.node(first), self.node(second)

    def all(self) -> tuple[TreeNode, ...]:
        """Return every node, parents before their children."""
        return tuple(sorted(self._nodes.values(), key=lambda node: (len(node.path), node.id)))

    def _cohort(self, name: CohortName) -> TreeNode:
        if name == ROOT:
            return self.top
        found = self._nodes.get(NodeId(f"cohort/{name}"))
        if found is None:
            given = self._cohorts.get(name, Cohort(name))
            parent = self._cohort(given.parent)
            found = self._add(
                NodeId(f"cohort/{name}"),
                parent,
                given.limits,
                given.weight,
                given,
            )
            found.guaranteed.update({key: at.nominal for key, at in given.limits.items()})
        return found

    def _add(
        self,
        of: NodeId,
        parent: TreeNode,
        limits: Mapping[ModelKey, Limit],
        weight: float,
        rules: Cohort | None = None,
    ) -> TreeNode:
        """Add a node; `rules`: the cohort, whose rules are those of its parent if it has none."""
        least, most = parent.min_runtime_seconds, parent.max_runtime_seconds
        if rules is not None and rules.min_runtime_seconds is not None:
            least = rules.min_runtime_seconds
        if rules is not None and rules.max_runtime_seconds is not None:
            most = rules.max_runtime_seconds
        made = self._nodes[of] = TreeNode(
            of,
            parent,
            limits,
            weight,
            (*parent.path, of),
            order=(rules.order if rules else None) or parent.order,
            min_runtime_seconds=least,
            max_runtime_seconds=most,
        )
        return made

    def _add_up(self) -> dict[ModelKey, int]:
        """Add what children lend to their parents; return all that is guaranteed."""
        below: dict[ModelKey, int] = {}
        for node in reversed(self.all()):
            for key, at in node.limits.items():
                below[key] = below.get(key, 0) + at.nominal
            if node.parent is not None:
                for key, amount in node.guaranteed.items():
                    lent = amount - node.never_lent(key)
                    node.parent.guaranteed[key] = node.parent.guaranteed.get(key, 0) + lent
        return below
