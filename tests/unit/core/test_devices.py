# SPDX-License-Identifier: Apache-2.0
from core_builders import cluster_of, node, place, share, taken, whole


def test_a_share_goes_to_the_fullest_gpu_that_fits():
    cluster = cluster_of(node("a", 3))
    taken(cluster, "a", 1, milli=300, memory=1000)
    taken(cluster, "a", 2, milli=600, memory=1000)
    assert place(cluster, share(400)) == "a/2"
    assert place(cluster, share(401)) == "a/1"
    assert place(cluster, share(800)) == "a/0"


def test_a_share_needs_its_memory_on_the_same_gpu():
    cluster = taken(cluster_of(node("a", 2)), "a", 0, milli=100, memory=70_000)
    assert place(cluster, share(100, 10_000)) == "a/0"
    assert place(cluster, share(100, 10_001)) == "a/1"


def test_of_equally_full_gpus_the_one_with_less_memory_left_then_the_first():
    cluster = cluster_of(node("a", 3))
    taken(cluster, "a", 1, milli=500, memory=1000)
    taken(cluster, "a", 2, milli=500, memory=2000)
    assert place(cluster, share(100)) == "a/2"
    assert place(cluster_of(node("b", 2)), share(100)) == "b/0"


def test_milli_gpu_left_counts_before_memory_left():
    cluster = taken(cluster_of(node("a", 2)), "a", 0, milli=100, memory=50_000)
    taken(cluster, "a", 1, milli=500, memory=1000)
    assert place(cluster, share(100)) == "a/1"


def test_whole_and_shared_never_meet_on_one_gpu():
    cluster = taken(cluster_of(node("a", 2)), "a", 0, milli=1, memory=1)
    assert place(cluster, whole(1)) == "a/1"
    taken(cluster, "a", 1)
    assert place(cluster, share(999)) == "a/0"
    assert "fewer than 1 free GPU " in place(cluster, whole(1))


def test_a_share_passes_over_the_fullest_gpu_where_that_has_no_slot():
    cluster = taken(cluster_of(node("a", 2, max_shares=1)), "a", 0, milli=600, memory=0)
    assert place(cluster, share(100)) == "a/1"


def test_a_whole_gpu_takes_no_slot():
    assert place(cluster_of(node("a", 1, max_shares=0)), whole(1)) == "a/0"


def test_the_smallest_clique_with_enough_gpus_is_used():
    cluster = cluster_of(node("a", 6, cliques=[0, 0, 0, 0, 1, 1]))
    assert place(cluster, whole(2)) == "a/4 a/5"
    assert place(cluster, whole(3)) == "a/0 a/1 a/2"


def test_one_gpu_is_taken_from_a_broken_clique_first():
    cluster = taken(cluster_of(node("a", 4, cliques=[0, 0, 1, 1])), "a", 3)
    assert place(cluster, whole(1)) == "a/2"


def test_a_gpu_without_nvlink_goes_first():
    cluster = cluster_of(node("a", 4, cliques=[0, 0, None, None]))
    assert place(cluster, whole(1)) == "a/2"


def test_within_a_clique_one_numa_node_is_preferred():
    cluster = cluster_of(node("a", 4, cliques=[0] * 4, numa=[0, 1, 0, 1]))
    assert place(cluster, whole(2)) == "a/0 a/2"
    taken(cluster, "a", 0)
    assert place(cluster, whole(2)) == "a/1 a/3"


def test_gpus_are_scattered_only_if_no_group_has_enough():
    cluster = cluster_of(node("a", 4, cliques=[0, 0, 1, 1]))
    assert place(cluster, whole(3)) == "a/0 a/1 a/2"
