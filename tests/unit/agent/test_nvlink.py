# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent.inventory.nvlink import cliques


def test_two_islands_are_named_after_their_lowest_gpu():
    pairs = {(0, 1), (2, 3)}
    assert cliques(range(5), lambda low, high: (low, high) in pairs) == {0: 0, 1: 0, 2: 2, 3: 2}


def test_a_gpu_without_peers_is_in_no_clique():
    assert cliques([0, 1], lambda _low, _high: False) == {}


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda p: p[0] < p[1])))
def test_linked_gpus_always_share_a_clique_named_after_a_member(pairs):
    found = cliques(range(8), lambda low, high: (low, high) in pairs)
    assert all(found[low] == found[high] for low, high in pairs)
    assert all(found[name] == name and name <= member for member, name in found.items())
