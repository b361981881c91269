# SPDX-License-Identifier: Apache-2.0
"""Who waits although his namespace was promised what he asks for.

A namespace starves while one of its jobs waits for no more than the namespace's own nominal amount
leaves. Borrowers make room for such a job; that it waits for long all the same says that its GPUs
are held by somebody who cannot be stopped, are broken, or lie on too many nodes.
"""

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.charge import least
from gpupack_core.queueing.job import Tenant
from gpupack_core.queueing.state import State
from gpupack_core.queueing.waiting import Lane


def starving(state: State, cluster: Cluster, now: float) -> dict[Tenant, float]:
    """Seconds for which the longest such job of each tenant has waited.

    Args:
        state: of the queue.
        cluster: whose GPUs they are.
        now: by the queue's clock.
    """
    found: dict[Tenant, float] = {}
    for lane in state.waiting.lanes():
        if lane.entries and _is_promised(state, cluster, lane):
            waited = now - min(entry.since for entry in lane.entries)
            found[lane.tenant] = max(found.get(lane.tenant, 0.0), waited)
    return found


def _is_promised(state: State, cluster: Cluster, lane: Lane) -> bool:
    """Whether what is left of the tenant's own promise of one model is enough for the gang."""
    books, gang = state.books, lane.gang
    leaf, needed = books.tree.tenant(lane.tenant), least(gang)
    used = books.usage.of(leaf)
    return needed > 0 and any(
        leaf.limit(key).nominal - used.get(key, 0) >= needed
        for key in books.keys.allowed(cluster, gang.request)
    )
