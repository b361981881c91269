# SPDX-License-Identifier: Apache-2.0
"""Usage of each quota and cohort, for their statuses.

    used(cohort)  = sum over all namespaces below it
    borrowed      = used - nominal, if positive
    lent          = nominal - used, if positive, but no more than all that is borrowed of the
                    model beyond the GPUs that no quota guarantees

It is undefined whose nominal GPU a namespace borrows: `lent` is an upper bound.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from gpupack_crds.gpucohort import CLUSTER_NAME
from gpupack_crds.quota import ANY_MODEL, CohortStatus, ModelUse, QuotaStatus
from gpupack_devices.units import WHOLE_GPU
from gpupack_queue import ANY, ModelKey, Queue, Tenant
from gpupack_queue.quotas.tree import TOP, NodeId, Tree, TreeNode

S = TypeVar("S", bound=QuotaStatus)

Amounts = Mapping[ModelKey, int]
"""Milli-GPU by model."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over one node of the tree."""

    nominal: Counter[ModelKey]
    used: Counter[ModelKey]
    running: int = 0
    waiting: int = 0


class UsageReport:
    """The usage at one time, computed once for all quotas and cohorts."""

    def __init__(self, queue: Queue) -> None:
        state = queue.state
        self._books = state.quota
        self._tree: Tree = state.quota.tree
        self._sums: dict[NodeId, _Sums] = {}
        waiting = Counter(entry.job.tenant for entry in state.pending)
        used, tenants = state.running.usage_by_tenant(), set(waiting)
        for quota in self._tree.quotas.quotas:
            tenants.add(quota.tenant)
        for tenant in sorted(tenants | set(used)):
            running = len(tuple(state.running.of_tenant(tenant)))
            self._add(tenant, used.get(tenant, {}), running, waiting[tenant])
        for node in self._tree.all():
            for key, limit in node.limits.items():
                for each in (TOP, *node.path):
                    self._of(each).nominal[key] += limit.nominal
        self._borrowed = self._beyond_promises()

    def of_tenant(self, tenant: str, *, generation: int, problem: str = "") -> QuotaStatus:
        """Return the status of a namespace's quota."""
        leaf = self._tree.tenant(Tenant(tenant))
        return self._status(QuotaStatus, leaf, generation, problem)

    def of_cohort(self, name: str, *, generation: int, problem: str = "") -> CohortStatus | None:
        """Return the status of a cohort; None if the queue does not know it yet."""
        of = TOP if name == CLUSTER_NAME else f"cohort/{name}"
        node = next((each for each in self._tree.all() if each.id == of), None)
        return None if node is None else self._status(CohortStatus, node, generation, problem)

    def _add(self, tenant: Tenant, used: Amounts, running: int, waiting: int) -> None:
        for each in (TOP, *self._tree.tenant(tenant).path):
            sums = self._of(each)
            sums.used.update(used)
            self._sums[each] = dataclasses.replace(
                sums, running=sums.running + running, waiting=sums.waiting + waiting
            )

    def _of(self, node: NodeId) -> _Sums:
        return self._sums.setdefault(node, _Sums(Counter(), Counter()))

    def _beyond_promises(self) -> Counter[ModelKey]:
        """Return, by model, what tenants borrow beyond GPUs that no quota guarantees."""
        found: Counter[ModelKey] = Counter()
        for node in self._tree.all():
            if node.is_tenant:
                for key, used in self._of(node.id).used.items():
                    found[key] += max(used - node.limit(key).nominal, 0)
        promised = self._of(TOP).nominal
        for key in found:
            unpromised = max(self._tree.capacity.get(key, 0) - promised[key], 0)
            found[key] = max(found[key] - unpromised, 0)
        return found

    def _status(self, kind: type[S], node: TreeNode, generation: int, problem: str) -> S:
        sums = self._of(node.id)
        models = tuple(
            self._model(node, key, sums)
            for key in sorted({*sums.nominal, *sums.used})
            if sums.nominal[key] or sums.used[key] or key in node.limits
        )
        total = [self._amounts(node, key, sums) for key in {*sums.nominal, *sums.used}]
        nominal, used, borrowed, lent = (
            (sum(column) for column in zip(*total, strict=True)) if total else (0, 0, 0, 0)
        )
        return kind(
            observed_generation=generation,
            models=models,
            nominal=gpus(nominal),
            used=gpus(used),
            borrowed=gpus(borrowed),
            lent=gpus(lent),
            share=f"{min(self._books.usage.share(node), 999):.3f}",
            running=sums.running,
            waiting=sums.waiting,
            problem=problem,
        )

    def _model(self, node: TreeNode, key: ModelKey, sums: _Sums) -> ModelUse:
        nominal, used, borrowed, lent = self._amounts(node, key, sums)
        return ModelUse(
            model=ANY_MODEL if key == ANY else key,
            nominal=gpus(nominal),
            used=gpus(used),
            borrowed=gpus(borrowed),
            lent=gpus(lent),
        )

    def _amounts(self, node: TreeNode, key: ModelKey, sums: _Sums) -> tuple[int, int, int, int]:
        nominal, used = sums.nominal[key], sums.used[key]
        lending = node.limit(key).lending
        spare = max(nominal - used, 0) if node.parent else 0
        lent = min(spare, self._borrowed[key], spare if lending is None else lending)
        return nominal, used, max(used - nominal, 0), lent


def gpus(milli: float) -> str:
    """Convert milli-GPU into text: «2», «2.5»."""
    return f"{milli / WHOLE_GPU:.3f}".rstrip("0").rstrip(".")
