# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from core_builders import BEST_FIT, WORST_FIT, cluster_of, node, place, taken, whole

from gpupack_core import DEFAULT_POLICY, POLICIES, UnknownPolicy, policy_named


def scores(policy, cluster, request):
    return policy.score(cluster.arrays, request, np.arange(len(cluster))).tolist()


def test_best_fit_weighs_cpu_and_gpu_left_against_the_largest_node():
    cluster = cluster_of(node("a", 8, cpu=128_000), node("b", 2, cpu=64_000))
    assert scores(BEST_FIT, cluster, whole(1)) == [6.0, 68.0]
    assert scores(BEST_FIT, cluster, whole(1, cpu=32_000)) == [18.0, 81.0]


def test_best_fit_treats_nodes_within_a_point_as_equal():
    cluster = cluster_of(node("a", 1, cpu=64_300), node("b", 1, cpu=64_200))
    assert place(cluster, whole(1)) == "a/0"


def test_worst_fit_counts_a_milli_gpu_as_a_hundred_milli_cpu():
    cluster = taken(cluster_of(node("a", 2), node("b", 1)), "a", 0, milli=500, memory=0)
    assert scores(WORST_FIT, cluster, whole(1, cpu=4000)) == [110_000.0, 60_000.0]


def test_the_table_knows_policies_by_their_names():
    assert {name: policy.name for name, policy in POLICIES.items()} == {
        name: name
        for name in (
            "best-fit",
            "dot-product",
            "fgd",
            "first-fit",
            "gpu-clustering",
            "gpu-packing",
            "random",
            "worst-fit",
        )
    }


def test_an_unknown_policy_says_which_there_are():
    with pytest.raises(UnknownPolicy, match="no policy 'fittest'; use one of: best-fit, dot-pro"):
        policy_named("fittest")


def test_the_default_is_one_of_the_table():
    assert policy_named("default") is POLICIES[DEFAULT_POLICY]
