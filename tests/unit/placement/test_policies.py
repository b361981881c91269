# SPDX-License-Identifier: Apache-2.0
import re
from dataclasses import replace

import numpy as np
import pytest
from placement_builders import (
    A100,
    BEST_FIT,
    WORST_FIT,
    cluster_of,
    gang,
    node,
    place,
    share,
    slices,
    taken,
    whole,
)
from policy_reference import FORMULAS

from gpupack_placement import (
    DEFAULT_POLICY,
    POLICIES,
    DemandForecast,
    Holder,
    RequestMix,
    UnknownPolicy,
    decide,
    plan_gang,
    policy_named,
)
from gpupack_placement.fragmentation import Fragmentation
from gpupack_placement.policies.random import Random


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
            "bid-price",
            "dot-product",
            "fgd",
            "first-fit",
            "gpu-clustering",
            "gpu-packing",
            "pace",
            "random",
            "worst-fit",
        )
    }


def test_an_unknown_policy_says_which_there_are():
    with pytest.raises(UnknownPolicy, match="no policy 'fittest'; use one of: best-fit, bid-pri"):
        policy_named("fittest")


def test_the_default_is_one_of_the_table():
    assert policy_named("default") is POLICIES[DEFAULT_POLICY]


def test_every_policy_has_a_formula_in_plain_python_or_tests_of_its_own():
    assert set(POLICIES) - set(FORMULAS) <= {"fgd", "random", "bid-price"}


def informed(name, *requests):
    return policy_named(name).informed(
        DemandForecast(RequestMix.of((request, 1) for request in requests))
    )


def test_dot_product_packs_what_is_large_in_the_same_way():
    cluster = cluster_of(node("a", 8, cpu=128_000), node("b", 4, cpu=64_000))
    assert scores(POLICIES["dot-product"], cluster, whole(8, cpu=128_000)) == [0.0, 50.0]
    assert scores(POLICIES["dot-product"], cluster, whole(0)) == [100.0, 100.0]


def test_gpu_packing_prefers_gpus_in_use_to_nodes_in_use_to_idle_nodes():
    cluster = cluster_of(node("idle", 4), node("used", 4), node("shared", 4))
    taken(taken(cluster, "used", 0), "shared", 0, milli=600, memory=0)
    packing = POLICIES["gpu-packing"]
    assert scores(packing, cluster, share(300)) == [29.0, 49.0, 96.0]
    assert scores(packing, cluster, share(500)) == [29.0, 49.0, 49.0]
    assert scores(packing, cluster, whole(2)) == [29.0, 48.0, 48.0]
    assert scores(packing, cluster, whole(0)) == [0.0, 0.0, 0.0]


def test_gpu_clustering_puts_sizes_together():
    cluster = cluster_of(*(node(name) for name in ("ones", "mixed", "idle", "twos")))
    taken(taken(cluster, "ones", 0), "twos", 0, 1)
    taken(taken(cluster, "mixed", 0), "mixed", 1, 2)
    clustering = POLICIES["gpu-clustering"]
    assert scores(clustering, cluster, whole(1)) == [78.0, 59.0, 25.0, 6.0]
    assert scores(clustering, cluster, share(100)) == [3.0, 9.0, 25.0, 6.0]


def test_ended_pods_no_longer_count_for_clustering():
    cluster = taken(cluster_of(node("a")), "a", 0, holder="x")
    cluster.give_back(Holder("x"))
    assert scores(POLICIES["gpu-clustering"], cluster, whole(1)) == [25.0]


def with_speeds(name, *speeds, **fields):
    found = node(name, len(speeds), **fields)
    paired = zip(found.devices, speeds, strict=True)
    return replace(found, devices=tuple(replace(d, speed=speed) for d, speed in paired))


def test_pace_keeps_nodes_without_a_slow_gpu_for_requests_that_need_a_whole_node():
    cluster = cluster_of(with_speeds("even", 1000, 1000), with_speeds("mixed", 600, 1000))
    pace = POLICIES["pace"]
    assert scores(pace, cluster, whole(1)) == [1000.0, 1400.0]
    assert scores(pace, cluster, whole(2)) == [1000.0, 600.0]
    assert place(cluster, whole(1), pace) == "mixed/1"
    assert place(cluster, whole(2), pace) == "even/0 even/1"
    assert scores(pace, cluster, share(100)) == [0.0, 0.0]


def test_a_sum_with_pace_takes_the_fastest_gpus_of_the_node_that_it_chooses():
    cluster = cluster_of(with_speeds("a", 960, 600, 1000, 1000))
    assert place(cluster, whole(2), policy_named("best-fit")) == "a/0 a/1"
    assert place(cluster, whole(2), policy_named("best-fit+0.1*pace")) == "a/2 a/3"


def test_for_a_faster_gpu_no_clique_is_left():
    cluster = cluster_of(with_speeds("a", 900, 900, 1000, 1000, cliques=[0, 0, None, None]))
    assert place(cluster, whole(2), POLICIES["pace"]) == "a/0 a/1"
    assert place(cluster, whole(1), POLICIES["pace"]) == "a/2"


def test_no_pace_is_promised_by_gpus_that_are_held():
    cluster = taken(cluster_of(with_speeds("a", 1000, 600)), "a", 0)
    assert scores(POLICIES["pace"], cluster, whole(1)) == [600.0]


def test_random_spreads_over_all_that_fit_and_repeats_itself():
    cluster = cluster_of(*(node(f"n{i}", 1) for i in range(10)))
    chosen = [place(cluster, share(100), Random(seed=seed)) for seed in range(200)]
    assert min(chosen.count(f"n{i}/0") for i in range(10)) > 5
    assert chosen == [place(cluster.fork(), share(100), Random(seed=seed)) for seed in range(200)]


def test_random_draws_the_gpu_of_a_share_too():
    cluster = cluster_of(node("a", 4))
    for gpu in range(4):
        taken(cluster, "a", gpu, milli=100 + gpu, memory=0)
    chosen = [place(cluster, share(100), Random(seed=seed)) for seed in range(100)]
    assert min(chosen.count(f"a/{gpu}") for gpu in range(4)) > 5


def test_the_random_policy_draws_again_after_each_placement():
    cluster = cluster_of(*(node(f"n{i}", 8) for i in range(30)))
    nodes = set()
    for number in range(30):
        answer = decide(cluster, whole(0, cpu=1000), POLICIES["random"])
        cluster.take(Holder(str(number)), answer)
        nodes.add(answer.node)
    assert 12 <= len(nodes) < 30


def test_fgd_keeps_whole_gpus_for_requests_of_whole_gpus():
    cluster = cluster_of(node("idle", 2), node("open", 2))
    taken(cluster, "open", 0, milli=400, memory=0)
    assert place(cluster, share(500), informed("fgd", whole(1), share(500))) == "open/0"
    assert place(cluster, whole(1), informed("fgd", whole(2))) == "open/1"


def test_fgd_gives_a_share_the_gpu_that_leaves_the_most_useful_gap():
    cluster = cluster_of(node("a", 2))
    taken(taken(cluster, "a", 0, milli=400, memory=0), "a", 1, milli=300, memory=0)
    assert place(cluster, share(300), informed("fgd", share(600), share(400))) == "a/1"
    assert place(cluster, share(300), BEST_FIT) == "a/0"


def test_fgd_that_knows_nothing_packs_as_best_fit_does():
    cluster = taken(cluster_of(node("a"), node("b"), node("c", 4)), "b", 0, 1)
    fgd = policy_named("fgd")
    assert [place(cluster, whole(n), fgd) for n in (1, 5)] == [
        place(cluster, whole(n)) for n in (1, 5)
    ]
    assert informed("fgd").name == "fgd"


def test_fgd_places_mig_slices_by_cpu():
    cluster = cluster_of(node("a", 2))
    assert scores(informed("fgd", whole(1)), cluster, slices("1g.10gb")) == [50.0]


def test_fragmentation_is_what_typical_pods_cannot_use():
    cluster = cluster_of(node("a", 2, cpu=4000), node("b", 2, model=A100, cpu=1000))
    taken(cluster, "a", 0, milli=600, memory=0)
    half = Fragmentation(RequestMix.of([(share(500, cpu=2000), 1), (whole(0), 1)]))
    assert half.of(cluster.arrays).tolist() == [200 + 700, 1000 + 1000]
    pairs = Fragmentation(RequestMix.of([(whole(2), 1)]))
    assert pairs.of(cluster.arrays).tolist() == [1400, 0]
    models = Fragmentation(RequestMix.of([(whole(1, models=("A100",)), 1)]))
    assert models.of(cluster.arrays).tolist() == [1400, 0]


def test_fragmentation_follows_nodes_that_come_and_grow():
    cluster, pairs = cluster_of(node("a", 2)), Fragmentation(RequestMix.of([(whole(2), 1)]))
    assert pairs.of(cluster.arrays).tolist() == [0]
    cluster.set_node(node("b", 12, model=A100))
    taken(cluster, "b", *range(11))
    of = dict(zip(("a", "b"), (cluster.row("a"), cluster.row("b")), strict=True))
    found = pairs.of(cluster.arrays)
    assert (found[of["a"]], found[of["b"]]) == (0, 1000)


def test_a_combination_weighs_scores_on_one_scale():
    cluster = taken(cluster_of(node("a"), node("b"), node("c")), "a", 0, 1)
    assert place(cluster, whole(1), policy_named("best-fit+0.9*worst-fit")).startswith("a/")
    assert place(cluster, whole(1), policy_named("0.9*best-fit + worst-fit")).startswith("b/")
    assert policy_named("0.9*best-fit + worst-fit").name == "0.9*best-fit+1*worst-fit"


def test_a_combination_of_one_is_that_policy():
    assert policy_named("2*fgd") is POLICIES["fgd"]
    assert policy_named("default+worst-fit").name == f"1*{DEFAULT_POLICY}+1*worst-fit"


def test_a_gang_under_a_combination_is_placed_as_its_workers_one_by_one():
    cluster = taken(cluster_of(node("a", 4), node("b", 4), node("c", 2)), "a", 0)
    policy = policy_named("best-fit+gpu-packing")
    planned = [p.node for p in plan_gang(cluster, gang(3, whole(1)), policy)]
    assert planned == ["a", "a", "a"]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("0.7*fgd+", "'' is not a policy with a weight such as 0.7*fgd"),
        ("0.7*fgd+0.3", "'0.3' is not a policy with a weight"),
        ("fgd*0.7", "'fgd*0.7' is not a policy with a weight"),
        ("-1*fgd+best-fit", "'-1*fgd' is not a policy"),
        ("0*fgd+best-fit", "the weight of fgd must be above 0"),
        ("9e999*fgd+best-fit", "'9e999*fgd' is not a policy"),
        ("0.5*fgd+0.5*fittest", "no policy 'fittest'; use one of: best-fit"),
        ("fgd+0.5*fgd", "fgd stands there twice; add its weights up"),
    ],
)
def test_a_wrong_combination_says_which_part_is_wrong(expression, message):
    with pytest.raises(UnknownPolicy, match=re.escape(message)):
        policy_named(expression)
