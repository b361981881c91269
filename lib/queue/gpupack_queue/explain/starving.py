# SPDX-License-Identifier: Apache-2.0
"""Namespaces that wait for GPUs that their own quotas guarantee.

A namespace starves while one of its jobs waits for no more than what the namespace's own nominal
quota leaves. Jobs that borrow are preempted for such a job. A long wait therefore means that its
GPUs are held by a job that cannot be preempted, are broken, or are on too many nodes.
"""

from gpupack_placement.cluster import Cluster
from gpupack_queue.charge import min_charge, permitted_models
from gpupack_queue.job import Tenant
from gpupack_queue.pending.pending_jobs import JobClass
from gpupack_queue.state.queue_state import State


def starving_seconds(state: State, cluster: Cluster, now: float) -> dict[Tenant, float]:
    """Return the seconds for which the longest waiting such job of each tenant has waited.

    Args:
        state: the state of the queue.
        cluster: the cluster with the GPUs.
        now: by the queue's clock.
    """
    found: dict[Tenant, float] = {}
    for job_class in state.pending.job_classes():
        if job_class.entries and _is_guaranteed(state, cluster, job_class):
            waited = now - min(entry.pending_since for entry in job_class.entries)
            found[job_class.tenant] = max(found.get(job_class.tenant, 0.0), waited)
    return found


def _is_guaranteed(state: State, cluster: Cluster, job_class: JobClass) -> bool:
    """Tell whether the rest of the tenant's nominal quota of one model is enough for the gang."""
    quota, gang = state.quota, job_class.gang
    leaf, needed = quota.tree.tenant(job_class.tenant), min_charge(gang)
    used = quota.usage.used_by(leaf)
    return needed > 0 and any(
        leaf.limit(key).nominal - used.get(key, 0) >= needed
        for key in quota.keys.allowed(cluster, permitted_models(gang))
    )
