# SPDX-License-Identifier: Apache-2.0
"""Who uses which quota, as things will be once all that was decided has been done.

A job that is being stopped for another counts no more, and the other counts already: nobody is
stopped twice for the same room, and shares are those that the decisions lead to. What is held
meanwhile is counted beside it, since a limit holds at every moment: who is being stopped holds what
he has until he has ended.
"""

from collections.abc import Iterable, Mapping
from copy import copy

from gpupack_core.cluster import Cluster
from gpupack_core.placement import Placement
from gpupack_core.queueing.charge import NOTHING, Charge, Key, Keys
from gpupack_core.queueing.history import History
from gpupack_core.queueing.job import Tenant
from gpupack_core.queueing.quota import Fifo, Quotas
from gpupack_core.queueing.rules import Rules
from gpupack_core.queueing.running import RunningJobs
from gpupack_core.queueing.tree import NodeId, Tree
from gpupack_core.queueing.usage import Usage


class Books:
    """Quotas and what is used of them; mutable."""

    def __init__(self, quotas: Quotas, rules: Rules) -> None:
        self.rules = rules
        self.history = History(rules.half_life)
        self.configure(quotas)

    def _use(self, tree: Tree) -> None:
        self.tree, self.usage, self.held = tree, Usage(tree), Usage(tree)
        self._scopes: dict[Tenant, NodeId | None] = {}

    def copy(self) -> "Books":
        """The same, independent of these."""
        twin, tree = copy(self), self.tree.copy()
        twin.tree, twin.history = tree, self.history.copy()
        twin.usage, twin.held = self.usage.copy(tree), self.held.copy(tree)
        vars(twin).update(_scopes=self._scopes.copy())
        return twin

    @property
    def counts(self) -> bool:
        """Whether anybody asks what is used; otherwise nothing is counted."""
        rules = self.rules
        moves = rules.consolidation.any
        return self.limits or rules.by_share or rules.preemption.any or moves

    @property
    def keys(self) -> Keys:
        """Under which GPUs count."""
        return self.tree.keys

    def charge(self, cluster: Cluster, placements: Iterable[Placement]) -> Charge:
        """What the placements count."""
        return self.keys.charge(cluster, placements) if self.counts else NOTHING

    def configure(self, quotas: Quotas) -> None:
        """Other quotas from now on; `rebuild` must follow."""
        self.quotas = quotas
        self.limits = not quotas.trivial
        """Whether any quota says anything."""
        self._use(Tree(quotas, {}))
        self.history.rename(self._as_named_now)

    def measure(self, cluster: Cluster) -> bool:
        """Whether the capacity has changed; then `rebuild` must follow."""
        capacity = self.keys.capacity(cluster)
        tree = Tree(self.quotas, capacity)
        if tree.capacity == self.tree.capacity:
            return False
        self._use(tree)
        return True

    def rebuild(self, counted: Iterable[tuple[Tenant, Charge]]) -> None:
        """Count everything anew."""
        self.usage, self.held = Usage(self.tree), Usage(self.tree)
        for tenant, charge in counted:
            self.starts(tenant, charge)

    def starts(self, tenant: Tenant, charge: Charge, *, sign: int = 1) -> None:
        """Somebody holds so much, who is not being stopped; `sign` -1: no more."""
        self.usage.add(tenant, charge, sign=sign)
        self.held.add(tenant, charge, sign=sign)

    def may_hold(self, tenant: Tenant, charge: Charge) -> bool:
        """Whether the tenant may hold so much more while all who are being stopped hold theirs."""
        return not self.limits or self.held.fits(tenant, charge)

    def felt(self, running: RunningJobs) -> Usage | None:
        """What counts for the order: as `usage`, with what was used of late; None: nothing does."""
        if not self.rules.by_share:
            return None
        if not self.history.half_life:
            return self.usage
        felt, used = Usage(self.tree), running.used()
        for tenant in {**self.history.averages, **used}:
            now = used.get(tenant, NOTHING)
            amounts = self.history.felt(tenant, now).items()
            # Of a model that the cluster has no more any amount is an infinite part.
            felt.add(tenant, {k: v for k, v in amounts if k in now or self.tree.capacity.get(k)})
        return felt

    def recall(
        self, kept: Mapping[Tenant, Mapping[Key, float]], at: float, running: RunningJobs
    ) -> None:
        """Averages that were kept outside, as far as they can be true."""
        believed: dict[Tenant, dict[Key, float]] = {}
        for tenant, amounts in kept.items():
            believed[tenant] = {}
            for named, milli in amounts.items():
                key = self._as_named_now(named)
                most = self.tree.capacity.get(key, 0)
                if milli > 0:
                    of_key = believed[tenant].get(key, 0.0) + milli
                    believed[tenant][key] = min(of_key, most)
        self.history.recall(believed, at, running.used())

    def _as_named_now(self, key: Key) -> Key:
        """A model that no quota names any more counts as its GPUs do."""
        return key if key in self.keys.all() else self.keys.of(key)

    def strict_scope(self, tenant: Tenant) -> NodeId | None:
        """Within what nobody goes before the first in line; None: others may."""
        if tenant not in self._scopes:
            self._scopes[tenant] = self._scope(tenant)
        return self._scopes[tenant]

    def _scope(self, tenant: Tenant) -> NodeId | None:
        """The highest cohort from which on all down to the tenant is strict."""
        node, scope = self.tree.tenant(tenant), None
        if (node.fifo or self.rules.fifo) is not Fifo.STRICT:
            return None
        above = node.parent
        while above is not None and (above.fifo or self.rules.fifo) is Fifo.STRICT:
            scope, above = above.id, above.parent
        return scope or node.id

    def min_runtime(self, tenant: Tenant) -> float:
        """Seconds for which the tenant's jobs are not stopped."""
        own = self.tree.tenant(tenant).min_runtime
        return self.rules.preemption.min_runtime if own is None else own
