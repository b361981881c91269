# SPDX-License-Identifier: Apache-2.0
"""All workers of a job, or none, by core's own decisions."""

from gpupack_core import Cluster, Gang, Placement, Policy, Refusal, decide, plan_gang


def place(cluster: Cluster, gang: Gang, policy: Policy) -> tuple[Placement, ...] | Refusal:
    """What each worker gets; the cluster is not changed."""
    if gang.workers == 1:
        answer = decide(cluster, gang.request, policy)
        return answer if isinstance(answer, Refusal) else (answer,)
    return plan_gang(cluster, gang, policy)


def never_fits(cluster: Cluster, gang: Gang, policy: Policy) -> str:
    """Why it fits not even the empty cluster; empty: it does."""
    answer = place(cluster.emptied(), gang, policy)
    return answer.message if isinstance(answer, Refusal) else ""
