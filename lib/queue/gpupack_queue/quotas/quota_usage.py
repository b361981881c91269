# SPDX-License-Identifier: Apache-2.0
"""Quota usage, as it will be once all decisions have been carried out.

A job that is being preempted no longer counts, and its preemptor counts already. So no job is
preempted twice for the same places, and the shares are those to which the decisions lead. What jobs
hold now is counted separately, because a limit holds at every moment: a victim counts as a holder
until it has ended.
"""

from collections.abc import Iterable, Mapping
from copy import copy

from gpupack_placement.cluster import Cluster
from gpupack_placement.placement import Placement
from gpupack_placement.request import Gang
from gpupack_queue.charge import (
    NO_CHARGE,
    Charge,
    ModelKey,
    ModelKeys,
    Models,
    min_charge,
    min_charge_by_models,
    permitted_models,
)
from gpupack_queue.job import Tenant
from gpupack_queue.quotas.quota import Quotas
from gpupack_queue.quotas.tree import NodeId, Tree
from gpupack_queue.quotas.usage import Usage
from gpupack_queue.quotas.usage_history import UsageHistory
from gpupack_queue.rules import OrderPolicy, Rules
from gpupack_queue.running.running_jobs import RunningJobs


class QuotaUsage:
    """Quotas and their usage; mutable."""

    def __init__(self, quotas: Quotas, rules: Rules) -> None:
        self.rules = rules
        self.history = UsageHistory(rules.half_life_seconds)
        self.user_history = UsageHistory(rules.half_life_seconds)
        """The averages of users, by the key of user_shares.py."""
        self.configure(quotas)

    def _use_tree(self, tree: Tree) -> None:
        self.tree, self.usage, self.held = tree, Usage(tree), Usage(tree)
        self._scopes: dict[Tenant, NodeId | None] = {}

    def copy(self) -> "QuotaUsage":
        """Return an independent copy."""
        twin, tree = copy(self), self.tree.copy()
        twin.tree, twin.history = tree, self.history.copy()
        twin.user_history = self.user_history.copy()
        twin.usage, twin.held = self.usage.copy(tree), self.held.copy(tree)
        vars(twin).update(_scopes=self._scopes.copy())
        return twin

    @property
    def tracks_usage(self) -> bool:
        """Tell whether usage matters to any rule; otherwise nothing is counted."""
        rules = self.rules
        moves = rules.consolidation.any
        return self.has_limits or rules.by_share or rules.preemption.any or moves

    @property
    def keys(self) -> ModelKeys:
        """Return the keys under which GPUs count."""
        return self.tree.keys

    def charge(self, cluster: Cluster, placements: Iterable[Placement]) -> Charge:
        """Return what the placements count against quotas."""
        return self.keys.charge(cluster, placements) if self.tracks_usage else NO_CHARGE

    def configure(self, quotas: Quotas) -> None:
        """Use other quotas from now on; a call of `rebuild` must follow."""
        self.quotas = quotas
        self.tenants_by_user = frozenset(
            each.tenant for each in quotas.quotas if each.by_user and self.rules.by_share
        )
        """The tenants whose users take turns."""
        self.has_limits = not quotas.is_trivial
        """Whether any quota guarantees or limits anything."""
        self._use_tree(Tree(quotas, {}))
        self.history.rename(self._current_key)
        self.user_history.rename(self._current_key)

    def update_capacity(self, cluster: Cluster) -> bool:
        """Tell whether the capacity has changed; then a call of `rebuild` must follow."""
        capacity = self.keys.capacity(cluster)
        tree = Tree(self.quotas, capacity)
        if tree.capacity == self.tree.capacity:
            return False
        self._use_tree(tree)
        return True

    def rebuild(self, counted: Iterable[tuple[Tenant, Charge]]) -> None:
        """Count all usage again from `counted`."""
        self.usage, self.held = Usage(self.tree), Usage(self.tree)
        for tenant, charge in counted:
            self.count(tenant, charge)

    def count(self, tenant: Tenant, charge: Charge, *, sign: int = 1) -> None:
        """Count what a job holds that is not being preempted; with `sign` -1 subtract it."""
        self.usage.add(tenant, charge, sign=sign)
        self.held.add(tenant, charge, sign=sign)

    def fits_with_victims(self, tenant: Tenant, charge: Charge) -> bool:
        """Tell whether the tenant may hold this much more while victims still hold their GPUs."""
        return not self.has_limits or self.held.fits(tenant, charge)

    def scarce_models(self, cluster: Cluster, tenant: Tenant, gang: Gang) -> tuple[Models, int]:
        """Return the models of the roles of which too little is left, and what they request.

        The models of all roles are returned if enough is left of each.
        """
        leaf = self.tree.tenant(tenant)
        for models, needed in min_charge_by_models(gang).items():
            keys = self.keys.allowed(cluster, models)
            if sum(max(self.usage.available(leaf, key), 0) for key in keys) < needed:
                return models, needed
        return permitted_models(gang), min_charge(gang)

    def effective_usage(self, running: RunningJobs) -> Usage | None:
        """Return the usage that decides the order, current and past; None: shares do not count."""
        if not self.rules.by_share:
            return None
        if not self.history.half_life:
            return self.usage
        effective, used = Usage(self.tree), running.usage_by_tenant()
        for tenant in {**self.history.averages, **used}:
            now = used.get(tenant, NO_CHARGE)
            amounts = self.history.effective(tenant, now).items()
            # For a model that the cluster no longer has, any amount would be an infinite share.
            effective.add(
                tenant, {k: v for k, v in amounts if k in now or self.tree.capacity.get(k)}
            )
        return effective

    def restore(
        self, averages: Mapping[Tenant, Mapping[ModelKey, float]], at: float, running: RunningJobs
    ) -> None:
        """Take over averages that were stored elsewhere, as far as they are possible.

        Amounts that are not positive are dropped. Each amount is limited to the cluster's capacity
        of its key.
        """
        accepted: dict[Tenant, dict[ModelKey, float]] = {}
        for tenant, amounts in averages.items():
            accepted[tenant] = {}
            for name, milli in amounts.items():
                key = self._current_key(name)
                capacity = self.tree.capacity.get(key, 0)
                if milli > 0:
                    total = accepted[tenant].get(key, 0.0) + milli
                    accepted[tenant][key] = min(total, capacity)
        self.history.restore(accepted, at, running.usage_by_tenant())

    def _current_key(self, key: ModelKey) -> ModelKey:
        """Return the key under which GPUs of this model count now, named by a quota or not."""
        return key if key in self.keys.all() else self.keys.of(key)

    def strict_scope(self, tenant: Tenant) -> NodeId | None:
        """Return the node within which no job passes a queue head; None: jobs may pass."""
        if tenant not in self._scopes:
            self._scopes[tenant] = self._scope(tenant)
        return self._scopes[tenant]

    def _scope(self, tenant: Tenant) -> NodeId | None:
        """Return the highest cohort from which every level down to the tenant has strict order.

        The result is the tenant's own node if no cohort above it is strict, and None if the tenant
        is not strict.
        """
        node, scope = self.tree.tenant(tenant), None
        if (node.order or self.rules.order) is not OrderPolicy.STRICT:
            return None
        above = node.parent
        while above is not None and (above.order or self.rules.order) is OrderPolicy.STRICT:
            scope, above = above.id, above.parent
        return scope or node.id

    def min_runtime(self, tenant: Tenant) -> float:
        """Return the number of seconds for which the tenant's jobs are not preempted."""
        own = self.tree.tenant(tenant).min_runtime_seconds
        return self.rules.preemption.min_runtime_seconds if own is None else own
