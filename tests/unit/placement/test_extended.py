# SPDX-License-Identifier: Apache-2.0
"""Resources that are counted by their names: devices of other plugins, huge pages, local disk."""

import pytest
from placement_builders import BEST_FIT, cluster_of, gang, node, place, whole

from gpupack_placement import (
    Holder,
    InvalidInventory,
    InvalidRequest,
    OverAllocated,
    Placement,
    Reason,
    amounts,
    decide,
    explain,
    plan_gang,
)
from gpupack_placement.extended import MAX_NAMES

NICS = (("rdma/hca", 2),)
ONE_NIC = whole(1, extended=(("rdma/hca", 1),))


def nodes_of(plan):
    return [placement.node for placement in plan]


def two(nics=2):
    """Node a is the first choice of what fits on both; only b has network devices."""
    return cluster_of(node("a", 2), node("b", 8, extended=(("rdma/hca", nics),)))


def test_a_worker_goes_where_all_of_its_resources_are():
    assert place(two(), whole(1)) == "a/0"
    assert place(two(), ONE_NIC) == "b/0"


def test_a_gang_is_placed_where_each_worker_finds_its_own():
    assert nodes_of(plan_gang(two(), gang(2, ONE_NIC), BEST_FIT)) == ["b", "b"]
    refusal = plan_gang(two(), gang(3, ONE_NIC), BEST_FIT)
    assert (refusal.placed, refusal.never) == (2, True)


def test_a_resource_that_no_node_has_is_named_and_never_fits():
    refusal = decide(two(nics=1), whole(1, extended=(("rdma/hca", 2),)), BEST_FIT)
    assert (refusal.reason, refusal.never) == (Reason.NO_SUCH_RESOURCE, True)
    assert refusal.message == (
        "0 of 2 nodes fit: 2 nodes: the node does not have the requested rdma/hca: 2 "
        "(most on one node: 1); it would not fit on the empty cluster either"
    )


def test_what_others_hold_is_lacking_for_now():
    cluster = two()
    cluster.take(Holder("x"), Placement("b", extended=NICS))
    refusal = decide(cluster, ONE_NIC, BEST_FIT, candidates=["b"])
    assert (refusal.reason, refusal.never) == (Reason.INSUFFICIENT_RESOURCE, False)
    assert refusal.message == (
        "0 of 1 node fits: 1 node: too little is free of the requested rdma/hca: 1 "
        "(most free on one node: 0)"
    )
    cluster.give_back(Holder("x"))
    assert place(cluster, ONE_NIC) == "b/0"


def test_only_the_resources_that_are_lacking_are_named_and_bytes_are_readable():
    cluster = cluster_of(node("a", extended=(("ephemeral-storage", 5 << 30), *NICS)))
    asked = whole(1, extended=(("ephemeral-storage", 10 << 30), ("rdma/hca", 1)))
    assert "requested ephemeral-storage: 10 GiB (most on one node: 5 GiB);" in place(cluster, asked)


def test_a_node_without_them_would_not_fit_with_less_of_something_else():
    cluster = cluster_of(node("a", cpu=1000))
    asked = whole(1, cpu=2000, extended=(("rdma/hca", 1),))
    assert decide(cluster, asked, BEST_FIT).nearest is None


def test_each_node_is_explained():
    reasons = explain(two(), whole(1, extended=(("rdma/hca", 9),)))
    assert set(reasons.values()) == {Reason.NO_SUCH_RESOURCE}


def test_more_than_is_free_is_not_taken_and_facts_are_held_all_the_same():
    cluster = two()
    with pytest.raises(OverAllocated, match="b has 2 of rdma/hca free, not 3"):
        cluster.take(Holder("x"), Placement("b", extended=(("rdma/hca", 3),)))
    cluster.adopt(Holder("x"), Placement("b", extended=(("rdma/hca", 3),)))
    refusal = decide(cluster, ONE_NIC, BEST_FIT)
    assert {each.reason for each in refusal.counts} == {
        Reason.NO_SUCH_RESOURCE,
        Reason.INSUFFICIENT_RESOURCE,
    }
    cluster.give_back(Holder("x"))
    assert place(cluster, ONE_NIC) == "b/0"


def test_holders_that_came_before_the_plugin_are_counted_once_it_is_there():
    cluster = cluster_of(node("a"))
    cluster.adopt(Holder("x"), Placement("a", extended=NICS))
    cluster.set_node(node("b", extended=NICS))
    cluster.set_node(node("a", extended=(("rdma/hca", 3),)))
    assert len(plan_gang(cluster, gang(3, ONE_NIC), BEST_FIT)) == 3
    assert not hasattr(decide(cluster, whole(1, extended=NICS), BEST_FIT), "counts")
    cluster.give_back(Holder("x"))
    assert len(plan_gang(cluster, gang(5, ONE_NIC), BEST_FIT)) == 5


def test_a_holder_that_came_before_the_plugin_and_leaves_after_it_frees_nothing_twice():
    cluster = cluster_of(node("a"), node("b", extended=NICS))
    cluster.adopt(Holder("x"), Placement("a", extended=NICS))
    cluster.give_back(Holder("x"))
    assert plan_gang(cluster, gang(3, ONE_NIC), BEST_FIT).placed == 2


def test_what_a_plan_takes_is_taken_on_its_own_sheet_alone():
    cluster = two()
    sheet = cluster.overlay()
    sheet.take(Holder("x"), Placement("b", extended=NICS))
    fork = cluster.fork()
    fork.set_node(node("c", extended=NICS))
    assert place(cluster, ONE_NIC) == "b/0"
    assert place(fork, ONE_NIC, candidates=["c"]) == "c/0"
    counts = decide(sheet, ONE_NIC, BEST_FIT).counts
    assert Reason.INSUFFICIENT_RESOURCE in {each.reason for each in counts}


def test_a_node_that_goes_takes_its_resources_with_it():
    cluster = two()
    cluster.remove_node("b")
    assert decide(cluster, ONE_NIC, BEST_FIT).never
    assert not cluster.arrays.extended.offered


def test_names_that_plugins_make_up_take_columns_up_to_a_bound():
    cluster = cluster_of(node("a", extended=NICS))
    for number in range(MAX_NAMES):
        cluster.set_node(node("b", extended=((f"example.com/{number}", 1),)))
    assert len(cluster.arrays.extended.offered) == 2
    many = tuple((f"example.com/{number:03}", 1) for number in range(MAX_NAMES + 9))
    cluster.set_node(node("b", extended=many))
    assert len(cluster.arrays.extended.offered) == MAX_NAMES
    assert place(cluster, ONE_NIC) == "a/0"


def test_amounts_are_sorted_and_positive():
    assert amounts({"b": 2, "a": 1, "c": 0}) == (("a", 1), ("b", 2))
    for wrong in ((("a", 0),), (("a", -1),), (("", 1),), (("b", 1), ("a", 1)), (("a", 1 << 51),)):
        with pytest.raises(InvalidRequest):
            whole(1, extended=wrong)
        with pytest.raises(InvalidInventory):
            node("a", extended=wrong)
