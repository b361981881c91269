# SPDX-License-Identifier: Apache-2.0
"""The fragmentation of free GPUs."""

import pytest

from gpupack_placement import Cluster, Device, Gang, MiB, Node, Request, plan_gang, policy_named
from gpupack_placement.free_blocks import fragmented_fraction


def cluster(*sizes):
    return Cluster(
        Node(f"n{at}", tuple(Device(f"{at}-{i}", i, "H200", MiB(1 << 17)) for i in range(size)))
        for at, size in enumerate(sizes)
    )


def hold(held, gpus, workers=1):
    gang = Gang.of(request=Request(gpus=gpus), workers=workers)
    for number, place in enumerate(plan_gang(held, gang, policy_named("worst-fit"))):
        held.take(f"{gpus}-{number}", place)


def test_whole_free_nodes_are_not_torn():
    assert fragmented_fraction(cluster(8, 8).arrays) == 0


def test_what_is_left_of_a_node_that_is_partly_held_is():
    held = cluster(8, 8)
    hold(held, 2)
    assert fragmented_fraction(held.arrays) == pytest.approx(6 / 14)


def test_nodes_smaller_than_the_largest_are_no_block_of_it():
    assert fragmented_fraction(cluster(8, 4).arrays) == pytest.approx(4 / 12)


def test_where_nothing_is_free_nothing_is_torn():
    assert fragmented_fraction(cluster().arrays) == 0
