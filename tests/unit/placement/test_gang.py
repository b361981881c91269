# SPDX-License-Identifier: Apache-2.0
import itertools

import pytest
from placement_builders import (
    BEST_FIT,
    FIRST_FIT,
    WORST_FIT,
    cluster_of,
    gang,
    mig,
    node,
    share,
    shown,
    slices,
    taken,
    whole,
    with_health,
)

from gpupack_placement import POLICIES, Health, Interconnect, Reason, plan_gang, policy_named


def plan(cluster, asked, policy=BEST_FIT):
    answer = plan_gang(cluster, asked, policy)
    return [shown(p) for p in answer] if isinstance(answer, tuple) else answer


def test_workers_share_a_node_as_long_as_they_fit():
    cluster = cluster_of(node("a", 4), node("b", 4))
    assert plan(cluster, gang(3, whole(2))) == ["a/0 a/1", "a/2 a/3", "b/0 b/1"]


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_workers_of_one_node_have_consecutive_indices(policy):
    cluster = cluster_of(node("a", 4), node("b", 4), node("c", 2))
    nodes = [placement.node for placement in plan_gang(cluster, gang(9, whole(1)), policy)]
    assert len(nodes) == 9
    changes = sum(one != other for one, other in itertools.pairwise(nodes))
    assert changes == len(set(nodes)) - 1


def test_shares_of_a_gang_fill_one_gpu_before_the_next():
    cluster = cluster_of(node("a", 2))
    assert plan(cluster, gang(3, share(400))) == ["a/0", "a/0", "a/1"]


def test_one_worker_per_node_is_kept():
    cluster = cluster_of(node("a"), node("b"), node("c", 0))
    placements = plan_gang(cluster, gang(2, whole(1), one_worker_per_node=True), BEST_FIT)
    assert [p.node for p in placements] == ["a", "b"]
    refusal = plan_gang(cluster, gang(3, whole(1), one_worker_per_node=True), BEST_FIT)
    assert (refusal.never, refusal.reason) == (True, Reason.SPREAD_LIMIT)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_policys_favourite_is_passed_over_where_it_would_break_the_node_limit(policy):
    cluster = cluster_of(node("small", 1), node("wide", 3), node("large", 4))
    placements = plan_gang(cluster, gang(7, whole(1), max_nodes=2), policy)
    assert {p.node for p in placements} == {"wide", "large"}


def test_the_policy_chooses_among_the_nodes_that_leave_a_way():
    cluster = cluster_of(node("a", 2), node("b", 4), node("c", 4))
    nodes = [p.node for p in plan_gang(cluster, gang(6, whole(1), max_nodes=2), FIRST_FIT)]
    assert nodes == ["a", "a", "b", "b", "b", "b"]


def test_worst_fit_scatters_a_gang():
    cluster = cluster_of(node("a", 4), node("b", 4))
    assert [p.node for p in plan_gang(cluster, gang(4, whole(1)), WORST_FIT)] == list("aabb")


def test_each_worker_has_its_own_nvlink_clique():
    cluster = taken(cluster_of(node("a", 6, cliques=[0, 0, 0, 1, 1, 1])), "a", 0)
    asked = gang(2, whole(2, interconnect=Interconnect.NVLINK))
    assert plan(cluster, asked) == ["a/1 a/2", "a/3 a/4"]


def test_a_refused_gang_counts_what_is_missing():
    cluster = cluster_of(node("a"), node("b"), node("c", 0))
    assert plan(cluster, gang(4, whole(8))).message == (
        "gang of 4 workers × 8 GPUs: 2 of 4 workers fit now; 16 GPUs are missing "  # noqa: RUF001
        "(16 free GPUs in 2 nodes, 32 requested); "
        "2 of 3 nodes have room for a worker, the others do not: 1 node: node has no GPUs; "
        "the gang would fit with 4 GPUs less for each worker; "
        "it would not fit on the empty cluster either"
    )


def test_nodes_are_counted_as_they_are_without_workers_that_are_not_placed():
    cluster = taken(cluster_of(node("a"), node("b"), node("c")), "c", 0, 1, 2)
    refusal = plan(cluster, gang(3, whole(8)))
    assert (refusal.fitting_nodes, refusal.total, refusal.reason) == (
        2,
        3,
        Reason.TOO_FEW_FREE_GPUS,
    )
    assert "2 of 3 nodes have room for a worker, the others do not: 1 node: " in refusal.message
    assert "(most free on one node: 5)" in refusal.message


def test_a_gang_that_only_waits_is_not_called_impossible():
    cluster = taken(cluster_of(node("a", 2), node("b", 2, ready=False)), "a", 0)
    refusal = plan(cluster, gang(2, whole(2)))
    assert (refusal.never, "3 GPUs are missing" in refusal.message) == (False, True)


def test_scattered_gpus_are_distinguished_from_missing_ones():
    cluster = cluster_of(node("a", 3), node("b", 3))
    message = plan(cluster, gang(3, whole(2))).message
    assert (
        "enough GPUs but not where they are needed (6 free GPUs in 2 nodes, 6 requested)" in message
    )


def test_cpu_and_memory_limit_the_workers_of_a_node():
    cluster = cluster_of(node("a", 8, cpu=3000), node("b", 8, memory=100))
    placements = plan_gang(cluster, gang(4, whole(1, cpu=1000, memory=100)), BEST_FIT)
    assert sorted(p.node for p in placements) == ["a", "a", "a", "b"]


def test_a_gang_in_one_clique_goes_to_the_smallest_that_takes_all():
    cluster = cluster_of(node("a", 7, cliques=[0, 0, 0, 0, 1, 1, 1]), node("b", 4))
    assert plan(cluster, gang(3, whole(1), same_clique=True)) == ["a/4", "a/5", "a/6"]
    assert plan(cluster, gang(2, whole(2), same_clique=True)) == ["a/0 a/1", "a/2 a/3"]


def test_a_gang_that_no_clique_takes_is_refused_even_if_the_node_has_enough_gpus():
    cluster = cluster_of(node("a", 4, cliques=[0, 0, 1, 1]))
    refusal = plan(cluster, gang(3, whole(1), same_clique=True))
    assert refusal.message == (
        "gang of 3 workers × 1 GPU in one NVLink clique: 2 of 3 workers fit now; "  # noqa: RUF001
        "enough GPUs but not where they are needed (4 free GPUs in 1 node, 3 requested); "
        "1 of 1 node has room for a worker; "
        "it would not fit on the empty cluster either"
    )


def test_shares_in_one_clique_may_have_a_gpu_without_nvlink_in_common():
    cluster = cluster_of(node("a", 2))
    assert plan(cluster, gang(2, share(500), same_clique=True)) == ["a/0", "a/0"]
    assert plan(cluster, gang(3, share(400), same_clique=True)).never


def test_a_gang_of_slices_takes_them_from_few_gpus():
    cluster = cluster_of(mig("a", {"1g.10gb": 3}, {"1g.10gb": 2}))
    assert plan(cluster, gang(2, slices("1g.10gb"))) == ["a/3", "a/4"]
    assert plan(cluster, gang(2, slices("1g.10gb", 3))).message.startswith(
        "gang of 2 workers × 3 MIG slices 1g.10gb: 1 of 2 workers fit now; "  # noqa: RUF001
        "1 MIG slice is missing (5 free MIG slices in 1 node, 6 requested)"
    )


def test_a_gang_names_the_smallest_reduction_with_which_it_would_fit():
    cluster = cluster_of(node("a", 2, cpu=3000), node("b", 2, cpu=3000))
    refusal = plan(cluster, gang(4, whole(1, cpu=2000)))
    assert refusal.nearest.text == "the gang would fit with 500 milli-CPU less for each worker"
    smaller = gang(4, refusal.nearest.applied(refusal.request))
    assert len(plan(cluster, smaller)) == 4


def test_a_policy_that_compares_nodes_plans_gangs_too():
    cluster = cluster_of(node("a", 2), node("b", 2))
    placements = plan_gang(cluster, gang(4, whole(1)), policy_named("0.5*best-fit+0.5*worst-fit"))
    assert sorted(p.node for p in placements) == list("aabb")


def test_a_gang_takes_degraded_gpus_for_as_few_workers_as_it_can():
    full = with_health(with_health(node("a", 4), 0, Health.DEGRADED), 1, Health.DEGRADED)
    cluster = cluster_of(full, node("b", 1))
    assert sorted(plan(cluster, gang(3, whole(1)))) == ["a/2", "a/3", "b/0"]
    assert sorted(plan(cluster, gang(5, whole(1)))) == ["a/0", "a/1", "a/2", "a/3", "b/0"]


def test_a_gang_of_one_clique_takes_the_clique_that_is_sound():
    sick = with_health(node("a", 8, cliques=[0, 0, 0, 0, 1, 1, 1, 1]), 1, Health.DEGRADED)
    cluster = cluster_of(sick)
    assert plan(cluster, gang(4, whole(1), same_clique=True)) == ["a/4", "a/5", "a/6", "a/7"]
    taken(cluster, "a", 4)
    assert plan(cluster, gang(4, whole(1), same_clique=True)) == ["a/0", "a/1", "a/2", "a/3"]
