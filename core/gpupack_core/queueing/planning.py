# SPDX-License-Identifier: Apache-2.0
"""Where a job goes by a policy."""

from collections.abc import Collection

from gpupack_core.cluster import Cluster
from gpupack_core.decide import choose
from gpupack_core.gang import choose_gang
from gpupack_core.policies.policy import Policy
from gpupack_core.queueing.job import Job, Places
from gpupack_core.request import Gang
from gpupack_core.units import NodeName


def places_by(
    policy: Policy, cluster: Cluster, job: Job, *, candidates: Collection[NodeName] | None = None
) -> Places | None:
    """Of each worker, on nodes that the job does not avoid if it fits there, or on any.

    `candidates` None: all nodes. The cluster is not changed; None: it fits nowhere.
    """
    if job.avoid:
        names = [node.name for node in cluster.nodes()] if candidates is None else candidates
        rather = [name for name in names if name not in job.avoid]
        places = _choose(cluster, job.gang, policy, rather)
        if places is not None:
            return places
    return _choose(cluster, job.gang, policy, candidates)


def _choose(
    cluster: Cluster, gang: Gang, policy: Policy, candidates: Collection[NodeName] | None
) -> Places | None:
    if gang.workers > 1 or gang.spread.same_clique:
        return choose_gang(cluster, gang, policy, candidates=candidates)
    placement = choose(cluster, gang.request, policy, candidates=candidates)
    return None if placement is None else (placement,)
