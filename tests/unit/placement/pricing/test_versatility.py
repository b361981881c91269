# SPDX-License-Identifier: Apache-2.0
from placement_builders import A100, cluster_of, device, node

from gpupack_placement import Node, NodeName
from gpupack_placement.fragmentation import UNIT
from gpupack_placement.pricing.versatility import STEP, Versatility

PRICE = round(STEP * UNIT)


def steps(cluster):
    """By node: of its memory, and of its largest clique."""
    view, found = cluster.arrays, Versatility()
    kinds, cliques, sizes = found.by_kind(view), found.by_clique(view), found.cliques(view)
    rows = [cluster.row(one.name) for one in cluster.nodes()]
    return [
        (
            int(kinds[view.node_kind[row]]) // PRICE if len(kinds) else None,
            int(cliques[sizes[row]]) // PRICE if len(cliques) else None,
        )
        for row in rows
    ]


def test_where_all_gpus_are_alike_none_has_a_price():
    assert steps(cluster_of(node("a", 8), node("b", 2))) == [(None, None)] * 2
    linked = [node(name, 4, cliques=[0, 0, 1, 1]) for name in "ab"]
    assert steps(cluster_of(*linked)) == [(None, None)] * 2


def test_models_of_equal_memory_are_worth_the_same():
    assert steps(cluster_of(node("a"), node("b", model=A100))) == [(None, None)] * 2


def test_each_smaller_size_of_memory_is_a_step():
    sizes = (24_000, 80_000, 16_000, 24_000)
    cluster = cluster_of(*(node(f"n{i}", 2, gpu_memory=size) for i, size in enumerate(sizes)))
    assert steps(cluster) == [(1, None), (2, None), (0, None), (1, None)]


def test_each_smaller_size_of_clique_is_a_step_whatever_its_number():
    cliques = (None, [0, 0, 5, 5], [7, 7, 7, 7])
    cluster = cluster_of(*(node(f"n{i}", 4, cliques=of) for i, of in enumerate(cliques)))
    assert steps(cluster) == [(None, 0), (None, 1), (None, 2)]


def test_gpus_of_a_mixed_node_have_no_price_and_do_not_count():
    both = Node(NodeName("m"), (device("m", 0), device("m", 1, memory=16_000)))
    assert steps(cluster_of(both, node("h", 4))) == [(None, None)] * 2
    assert steps(cluster_of(both, node("h", 4), node("s", gpu_memory=8000))) == [
        (0, None),
        (1, None),
        (0, None),
    ]


def test_nodes_that_come_and_go_change_the_price():
    cluster = cluster_of(node("h", 4), node("s", 4, gpu_memory=8000))
    assert steps(cluster) == [(1, None), (0, None)]
    cluster.set_node(node("s", 4))
    assert steps(cluster) == [(None, None)] * 2
