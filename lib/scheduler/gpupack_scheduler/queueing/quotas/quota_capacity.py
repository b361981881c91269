# SPDX-License-Identifier: Apache-2.0
"""Quotas that the GPUs of the cluster cannot meet: a condition of GPUQuotas and GPUCohorts.

    no GPU of a model                        ─► ModelNotFound, such as a misspelt one
    nominal of the quota > GPUs of the model ─► NominalExceedsCapacity
    nominal of all quotas > GPUs             ─► NominalSumExceedsCapacity

It is a warning: the quota applies as it is, and nodes may be added later. All GPUs of the
inventory count, whatever their health, so that a reboot changes nothing.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpupack_crds.condition import Condition, ConditionStatus, transition_time
from gpupack_crds.gpucohort import CLUSTER_NAME
from gpupack_crds.quota import ANY_MODEL, CAPACITY_MISSING
from gpupack_crds.times import format_time
from gpupack_devices.models import may_match, nearest_models
from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import ABSENT
from gpupack_placement.cluster import Cluster
from gpupack_queue import ANY, Limit, ModelKey, Queue, Tenant
from gpupack_queue.quotas.tree import Tree, TreeNode

MAX_MESSAGE: Final = 1024
HELP: Final = "correct spec.gpus, or add nodes"
OTHER_MODELS: Final = f'"{ANY_MODEL}" (models that no quota names)'


class Shortfall(NamedTuple):
    """Why the GPUs of the cluster do not meet a quota."""

    reason: str
    message: str


class CapacityReport:
    """What the cluster lacks for its quotas, computed once for all of them."""

    def __init__(self, queue: Queue, cluster: Cluster) -> None:
        quota = queue.state.quota
        self._cluster, self._tree = cluster, quota.tree
        self._capacity = quota.keys.capacity(cluster)
        self._nominal: Counter[ModelKey] = Counter()
        for node in self._tree.all():
            for key, limit in node.limits.items():
                self._nominal[key] += limit.nominal

    def of_tenant(self, tenant: str) -> Shortfall | None:
        """Return what a namespace's quota lacks; None: nothing."""
        return self._of(self._tree.tenant(Tenant(tenant)))

    def of_cohort(self, name: str) -> Shortfall | None:
        """Return what a cohort's own limits lack; None: nothing, or the queue does not know it."""
        node = None if name == CLUSTER_NAME else _cohort(self._tree, name)
        return None if node is None else self._of(node)

    def _of(self, node: TreeNode) -> Shortfall | None:
        found = [
            shortfall
            for key, limit in sorted(node.limits.items())
            for shortfall in self._shortfalls(key, limit)
        ]
        if not found:
            return None
        messages = "; ".join(each.message for each in found)
        return Shortfall(found[0].reason, f"{messages}: {HELP}")

    def _shortfalls(self, key: ModelKey, limit: Limit) -> Iterator[Shortfall]:
        """Yield at most one reason for a model."""
        there, model = self._capacity.get(key, 0), OTHER_MODELS if key == ANY else key
        has = f"{there // WHOLE_GPU} GPUs of the cluster count as {model}"
        if key != ANY and not there and not self._is_known(key):
            yield Shortfall(
                "ModelNotFound", f"no node has a GPU of model {key}{self._nearest(key)}"
            )
        elif limit.nominal > there:
            guaranteed = f"the quota guarantees {limit.nominal // WHOLE_GPU} {model}"
            yield Shortfall("NominalExceedsCapacity", f"{guaranteed}, and {has}")
        elif limit.nominal and self._nominal[key] > there:
            guaranteed = f"all quotas together guarantee {self._nominal[key] // WHOLE_GPU} {model}"
            yield Shortfall("NominalSumExceedsCapacity", f"{guaranteed}, and {has}")

    def _is_known(self, key: ModelKey) -> bool:
        return any(may_match(key, model) for model in self._cluster.model_names.in_use)

    def _nearest(self, key: ModelKey) -> str:
        a = self._cluster.arrays
        numbers = set(a.kind[a.capacity > 0].ravel().tolist()) - {ABSENT}
        nearest = nearest_models((key,), (a.kinds.values[number] for number in sorted(numbers)))
        return f" (there are {', '.join(nearest)})" if nearest else ""


def _cohort(tree: Tree, name: str) -> TreeNode | None:
    return next((each for each in tree.all() if each.id == f"cohort/{name}"), None)


def with_capacity_condition(
    recorded: tuple[Condition, ...],
    shortfall: Shortfall | None,
    *,
    generation: int,
    now: dt.datetime,
) -> tuple[Condition, ...]:
    """Update the condition; a quota that the cluster has always met gets none."""
    before = next((each for each in recorded if each.type == CAPACITY_MISSING), None)
    if before is None and shortfall is None:
        return recorded
    status: ConditionStatus = "True" if shortfall else "False"
    reason, message = shortfall or ("CapacityFound", "the cluster has the GPUs of this quota")
    at = transition_time(before, status, format_time(now))
    others = (each for each in recorded if each is not before)
    wanted = Condition(CAPACITY_MISSING, status, reason, message[:MAX_MESSAGE], at, generation)
    return (*others, wanted)
