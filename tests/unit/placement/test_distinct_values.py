# SPDX-License-Identifier: Apache-2.0
"""Values that come and go without end, as taints that carry times, are not kept without end."""

import pytest
from placement_builders import BEST_FIT, H100, device, node

from gpupack_placement import (
    POLICIES,
    Cluster,
    DemandForecast,
    Effect,
    Node,
    Request,
    RequestMix,
    Share,
    Slices,
    Taint,
    Toleration,
    TolerationOperator,
    decide,
)
from gpupack_placement.memo import MAX_KINDS
from gpupack_placement.table import Table

DISTINCT = 50_000
NODES = 2_000
"""Distinct nodes: each is written into the arrays."""
ANY_TAINT = (Toleration(operator=TolerationOperator.EXISTS),)


def bare(name, **changes):
    return Node(name, (), cpu=1000, memory=1000, **changes)


def with_device(name, **changes):
    return Node(name, (device(name, 0, **changes),), cpu=1000, memory=1000)


CHURN = {
    "taints": ("taint_sets", lambda n: bare("a", taints=(Taint("t", str(n), Effect.NO_SCHEDULE),))),
    "resource names": ("resources", lambda n: with_device("a", resource=f"example.org/{n}")),
    "models": ("model_names", lambda n: with_device("a", model=f"GPU {n}")),
    "MIG profiles": (
        "profiles",
        lambda n: with_device("a", profile=f"{n}g", parent="GPU-0", max_shares=0),
    ),
}


@pytest.mark.parametrize(("table", "built"), CHURN.values(), ids=CHURN)
def test_a_table_holds_what_is_in_use(table, built):
    cluster = Cluster([bare("b")])
    for number in range(NODES):
        cluster.set_node(built(number))
    assert len(getattr(cluster, table).values) <= 4
    cluster.remove_node("a")
    assert len(getattr(cluster, table).in_use) <= 1


def test_kinds_of_gpus_that_are_no_more_are_forgotten_by_policies_too():
    policies = [POLICIES[name].informed(MIX) for name in ("fgd", "bid-price")]
    cluster = Cluster([node("b")])
    for number in range(100):
        cluster.set_node(with_device("a", model=f"GPU {number}", memory=1 + number))
        for policy in policies:
            decide(cluster, Request(gpus=1), policy)
    assert len(cluster.arrays.kinds.values) <= 4
    assert len(policies[0].fragmentation._groups) < 30


MIX = DemandForecast(
    RequestMix.of([(Request(share=Share(100, memory)), 1) for memory in range(1, 101)]), churn=1.0
)


def test_a_refusal_of_a_tainted_cluster_leaves_nothing_behind():
    cluster = Cluster([bare("b")])
    for number in range(100):
        taints = (Taint("node.kubernetes.io/x", str(number), Effect.NO_SCHEDULE),)
        cluster.set_node(bare("a", taints=taints))
        assert decide(cluster, Request(gpus=1), BEST_FIT).never
    assert len(cluster.taint_sets.values) <= 3


def test_decisions_are_right_while_numbers_change_owners():
    red, blue = (Taint("team", name, Effect.NO_SCHEDULE) for name in ("red", "blue"))
    cluster = Cluster([node("a", 1, taints=(red,)), node("b", 1, taints=(blue,))])
    tolerates = (Toleration("team", value="red"),)
    assert decide(cluster, Request(gpus=1, tolerations=tolerates), BEST_FIT).node == "a"
    for _ in range(3):
        cluster.set_node(node("a", 1))
        cluster.set_node(node("b", 1, taints=(red,)))
        cluster.set_node(node("a", 1, taints=(blue,)))
        assert decide(cluster, Request(gpus=1, tolerations=tolerates), BEST_FIT).node == "b"
        cluster.set_node(node("b", 1, taints=(blue,)))
        cluster.set_node(node("a", 1, taints=(red,)))
        assert decide(cluster, Request(gpus=1, tolerations=tolerates), BEST_FIT).node == "a"


def test_a_fork_keeps_its_numbers_while_the_original_gives_them_to_others():
    cluster = Cluster([with_device("a", model="H100"), with_device("b", model="A100")])
    fork = cluster.fork()
    for number in range(10):
        cluster.set_node(with_device("a", model=f"GPU {number}"))
    wants = Request(gpus=1, models=("H100",))
    assert decide(fork, wants, BEST_FIT).node == "a"
    assert not hasattr(decide(cluster, wants, BEST_FIT), "node")


def test_tolerations_that_make_no_difference_make_no_kind_of_their_own():
    cluster = Cluster([node("a", taints=(Taint("t", "x", Effect.NO_SCHEDULE),)), node("b")])
    for number in range(100):
        key = f"k{number}"
        decide(cluster, Request(gpus=1, tolerations=(Toleration(key, value="v"),)), BEST_FIT)
    assert len(cluster.room) == 1
    decide(cluster, Request(gpus=1, tolerations=ANY_TAINT), BEST_FIT)
    assert len(cluster.room) == 2


def test_kinds_of_requests_without_end_are_not_kept():
    cluster = Cluster([node("a")])
    for number in range(3 * MAX_KINDS):
        decide(cluster, Request(gpus=1, cpu=number), BEST_FIT)
    assert len(cluster.room) <= MAX_KINDS


def test_a_table_of_fifty_thousand_values_of_which_three_are_in_use_has_three():
    table = Table()
    for number in range(DISTINCT):
        table.take(number)
        if number >= 3:
            table.give_back(table.values.index(number - 3))
    assert len(table.values) == 4


def test_a_table_counts_uses_and_gives_free_numbers_to_new_values():
    table = Table()
    assert [table.take(value) for value in ("x", "y", "x")] == [0, 1, 0]
    table.give_back(0)
    assert set(table.in_use) == {"x", "y"}
    table.give_back(0)
    assert set(table.in_use) == {"y"}
    assert table.take("z") == 0
    assert table.values == ["z", "y"]


def test_slices_are_found_after_their_profile_had_other_numbers():
    cluster = Cluster([with_device("a", profile="1g.10gb", parent="GPU-0", max_shares=0)])
    for number in range(5):
        cluster.set_node(with_device("a", profile=f"{number}g", parent="GPU-0", max_shares=0))
    cluster.set_node(with_device("a", profile="1g.10gb", parent="GPU-0", max_shares=0))
    assert decide(cluster, Request(slices=Slices("1g.10gb")), BEST_FIT).node == "a"
    assert H100 not in cluster.model_names.values[1:]
