# SPDX-License-Identifier: Apache-2.0
"""All workers of a job, or none, by core's own decisions."""

from gpupack_core import (
    Cluster,
    Gang,
    Placement,
    Policy,
    Refusal,
    choose,
    choose_gang,
    decide,
    plan_gang,
)


def place(cluster: Cluster, gang: Gang, policy: Policy) -> tuple[Placement, ...] | None:
    """What each worker gets, None where they do not fit; the cluster is not changed."""
    if gang.workers == 1:
        placement = choose(cluster, gang.request, policy)
        return None if placement is None else (placement,)
    return choose_gang(cluster, gang, policy)


def never_fits(cluster: Cluster, gang: Gang, policy: Policy) -> str:
    """Why it fits not even the empty cluster; empty: it does."""
    ideal, alone = cluster.emptied(), gang.workers == 1
    answer = decide(ideal, gang.request, policy) if alone else plan_gang(ideal, gang, policy)
    return answer.message if isinstance(answer, Refusal) else ""
