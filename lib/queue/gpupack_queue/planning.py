# SPDX-License-Identifier: Apache-2.0
"""The choice of a job's places by a policy."""

from collections.abc import Callable, Collection
from dataclasses import replace

from gpupack_devices.units import NodeName
from gpupack_placement.cluster import Cluster
from gpupack_placement.decide import choose
from gpupack_placement.gang import choose_gang
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Gang
from gpupack_queue.job import Job, Places

Planner = Callable[[Cluster, Job], Places | None]
"""A function that returns the job's places in a cluster, or None; the cluster is not changed."""


def place_by_policy(
    policy: Policy, cluster: Cluster, job: Job, *, candidates: Collection[NodeName] | None = None
) -> Places | None:
    """Return the placement of each worker; None: the job fits nowhere.

    Nodes that the job avoids are used only if it does not fit on the others. If its models are in
    order of preference, an earlier one is preferred to what the policy prefers. `candidates` None:
    all nodes. The cluster stays as it is.
    """
    if job.avoid:
        names = [node.name for node in cluster.nodes()] if candidates is None else candidates
        rather = [name for name in names if name not in job.avoid]
        places = _choose_preferred(cluster, job, policy, rather)
        if places is not None:
            return places
    return _choose_preferred(cluster, job, policy, candidates)


def _choose_preferred(
    cluster: Cluster, job: Job, policy: Policy, candidates: Collection[NodeName] | None
) -> Places | None:
    """Place a job on GPUs of one model, the earliest that fits; of several if none fits alone."""
    gang, models = job.gang, job.gang.roles[0].request.models
    places = _choose(cluster, gang, policy, candidates)
    if places is None or job.model_fallback_seconds is None or len(models) <= 1:
        return places
    for model in models:
        alone = with_models(gang, (model,))
        found = _choose(cluster, alone, policy, candidates)
        if found is not None:
            return found
    return places


def with_models(gang: Gang, models: tuple[str, ...]) -> Gang:
    """Return the gang with these models instead of those of its requests."""
    return gang.with_requests([replace(request, models=models) for request in gang.requests])


def _choose(
    cluster: Cluster, gang: Gang, policy: Policy, candidates: Collection[NodeName] | None
) -> Places | None:
    if gang.workers > 1 or gang.is_spread:
        return choose_gang(cluster, gang, policy, candidates=candidates)
    placement = choose(cluster, gang.roles[0].request, policy, candidates=candidates)
    return None if placement is None else (placement,)
