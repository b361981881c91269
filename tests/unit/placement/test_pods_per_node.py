# SPDX-License-Identifier: Apache-2.0
"""A node runs so many pods and no more, whatever they ask for."""

import pytest
from placement_builders import BEST_FIT, cluster_of, gang, node, whole

from gpupack_placement import (
    Holder,
    OverAllocated,
    Placement,
    Reason,
    decide,
    dump,
    load,
    plan_gang,
)

NOTHING = Placement("a")


def crowded(pods, running, **kw):
    """One node of eight GPUs with so many pods that ask for nothing."""
    cluster = cluster_of(node("a", pods=pods, **kw))
    for number in range(running):
        cluster.adopt(Holder(f"p{number}"), NOTHING)
    return cluster


def test_a_node_with_as_many_pods_as_it_may_run_gets_no_more():
    cluster = crowded(3, 3)
    assert decide(cluster, whole(1), BEST_FIT).message == (
        "0 of 1 node fits: 1 node: the node runs its maximum number of pods (most on one node: 3)"
    )
    cluster.give_back(Holder("p0"))
    assert decide(cluster, whole(1), BEST_FIT).node == "a"


def test_of_a_gang_no_more_workers_come_to_a_node_than_it_may_run():
    cluster = crowded(5, 2)
    assert len(plan_gang(cluster, gang(3, whole(1)), BEST_FIT)) == 3
    refusal = plan_gang(cluster, gang(4, whole(1)), BEST_FIT)
    assert (refusal.reason, refusal.placed, refusal.never) == (Reason.TOO_MANY_PODS, 3, False)
    assert plan_gang(cluster, gang(6, whole(1)), BEST_FIT).never


def test_where_no_pod_may_run_none_would_with_less_cpu():
    cluster = crowded(1, 1, cpu=1000)
    assert decide(cluster, whole(1, cpu=2000), BEST_FIT).nearest is None


def test_more_pods_than_there_may_be_are_not_taken_and_facts_are_held_all_the_same():
    cluster = crowded(1, 1)
    with pytest.raises(OverAllocated, match="a runs as many pods as it may: 1"):
        cluster.take(Holder("q"), NOTHING)
    cluster.adopt(Holder("q"), NOTHING)
    cluster.give_back(Holder("p0"))
    assert isinstance(decide(cluster, whole(1), BEST_FIT).reason, Reason)


def test_what_is_no_pod_takes_the_place_of_none():
    cluster = crowded(1, 0)
    cluster.adopt(Holder("lingers"), Placement("a", pods=0))
    assert decide(cluster, whole(1), BEST_FIT).node == "a"


def test_a_document_tells_how_many_pods_may_run_and_which_holders_are_pods():
    cluster = crowded(2, 1)
    cluster.adopt(Holder("lingers"), Placement("a", pods=0))
    read = load(dump(cluster))
    assert (read.nodes(), read.held()) == (cluster.nodes(), cluster.held())
