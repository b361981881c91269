# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from placement_builders import (
    A100,
    BEST_FIT,
    FIRST_FIT,
    WORST_FIT,
    cluster_of,
    gang,
    node,
    place,
    share,
    taken,
    whole,
    with_health,
)

from gpupack_placement import (
    POLICIES,
    DemandForecast,
    Health,
    Interconnect,
    InvalidScores,
    NodeSelector,
    Operator,
    Placement,
    Policy,
    Reason,
    Refusal,
    RequestMix,
    Requirement,
    Taint,
    Term,
    Toleration,
    decide,
    explain,
    plan_gang,
    rank,
)


def test_whole_gpus_go_to_the_fullest_node_that_fits():
    cluster = taken(cluster_of(node("a"), node("b"), node("c", 4)), "b", 0, 1)
    assert place(cluster, whole(1)) == "c/0"
    assert place(cluster, whole(5)) == "b/2 b/3 b/4 b/5 b/6"
    assert place(cluster, whole(8)).startswith("a/0")


def test_worst_fit_takes_the_emptiest_node_and_first_fit_the_first():
    cluster = taken(cluster_of(node("a"), node("b"), node("c", 4)), "a", 0)
    assert place(cluster, whole(1), WORST_FIT) == "b/0"
    assert place(cluster, whole(1), FIRST_FIT) == "a/1"


def test_equal_nodes_go_to_the_one_added_first():
    assert place(cluster_of(node("z"), node("a")), whole(2)) == "z/0 z/1"


def test_a_tie_seed_orders_equal_nodes_whatever_the_order_of_adding():
    names = [f"n{i}" for i in range(20)]
    forth = cluster_of(*(node(name, 1) for name in names), tie_seed=7)
    back = cluster_of(*(node(name, 1) for name in reversed(names)), tie_seed=7)
    assert place(forth, whole(1)) == place(back, whole(1))
    others = {place(cluster_of(*map(node, names), tie_seed=s), whole(1)) for s in range(8)}
    assert len(others) > 1


def test_a_cpu_only_pod_gets_a_node_and_no_device():
    answer = decide(cluster_of(node("a", 0)), whole(0, cpu=1000), BEST_FIT)
    assert answer == Placement("a", (), 1000, 0)


def test_the_placement_carries_memory_of_whole_gpus_and_the_pods_requests():
    answer = decide(cluster_of(node("a", 1)), whole(1, cpu=500, memory=64), BEST_FIT)
    assert (answer.cpu, answer.memory) == (500, 64)
    assert [(g.milli, g.memory) for g in answer.devices] == [(1000, 80_000)]


def test_only_candidates_are_considered():
    cluster = cluster_of(node("a", 1), node("b"))
    assert place(cluster, whole(1), candidates=["b"]) == "b/0"
    assert place(cluster, whole(1), candidates=[]) == "0 of 0 nodes fit: there are no nodes"


def test_a_candidate_without_inventory_is_refused_by_name():
    answer = decide(cluster_of(node("a")), whole(1), BEST_FIT, candidates=["x"])
    assert (answer.reason, answer.total, answer.never) == (Reason.NODE_UNKNOWN, 1, False)


def test_a_model_is_asked_for_by_whole_words():
    cluster = cluster_of(node("a"), node("b", model=A100))
    assert place(cluster, whole(1, models=("a100",))) == "b/0"
    assert place(cluster, whole(1, models=("A10", "H100"))) == "a/0"


def test_minimum_memory_counts_per_device():
    cluster = cluster_of(node("a", 2, gpu_memory=24_000), node("b", 8))
    assert place(cluster, whole(1, min_memory=40_000)) == "b/0"


@pytest.mark.parametrize("health", [Health.CORDONED, Health.FAILED])
def test_sick_devices_get_no_work(health):
    cluster = cluster_of(with_health(node("a", 2), 0, health))
    assert place(cluster, whole(1)) == "a/1"
    assert place(cluster, share(100)) == "a/1"
    assert decide(cluster, whole(2), BEST_FIT).reason is Reason.GPU_FAILED


def test_a_degraded_device_serves_where_no_other_could():
    cluster = cluster_of(with_health(node("a", 2), 0, Health.DEGRADED), node("b", 2))
    taken(cluster, "b", 0)
    assert place(cluster, share(100)) == "b/1"
    assert place(cluster, whole(1)) == "b/1"
    assert place(cluster, whole(2)) == "a/0 a/1"
    taken(cluster, "b", 1)
    assert place(cluster, whole(1)) == "a/1"
    taken(cluster, "a", 1)
    assert place(cluster, share(100)) == "a/0"
    assert place(cluster, whole(1)) == "a/0"


def test_nodes_that_fit_are_ranked_behind_others_where_only_degraded_devices_are_free():
    cluster = cluster_of(with_health(node("a", 1), 0, Health.DEGRADED), node("b", 4))
    assert [each.node for each in rank(cluster, whole(1), BEST_FIT)] == ["b", "a"]


def test_a_gang_asking_for_nvlink_stays_in_one_clique():
    cluster = cluster_of(node("a", 4, cliques=[0, 0, 1, 1]))
    request = whole(2, interconnect=Interconnect.NVLINK)
    taken(cluster, "a", 0)
    assert place(cluster, request) == "a/2 a/3"
    taken(cluster, "a", 2)
    assert decide(cluster, request, BEST_FIT).reason is Reason.NVLINK_CLIQUE_BUSY
    assert place(cluster, whole(2)) == "a/1 a/3"


def test_a_taint_keeps_away_requests_without_a_toleration():
    cluster = cluster_of(node("a", taints=(Taint("team", "x"),)))
    assert decide(cluster, whole(1), BEST_FIT).reason is Reason.TAINT_NOT_TOLERATED
    assert place(cluster, whole(1, tolerations=(Toleration("team", value="x"),))) == "a/0"


def test_a_selector_sees_labels_as_they_are_now():
    cluster = cluster_of(node("a", labels={"zone": "1"}), node("b", labels={"zone": "2"}))
    request = whole(1, selector=NodeSelector(labels=(("zone", "2"),)))
    assert place(cluster, request) == "b/0"
    cluster.set_node(node("a", labels={"zone": "2"}))
    cluster.set_node(node("b"))
    assert place(cluster, request) == "a/0"


def test_affinity_can_name_a_node():
    term = Term(fields=(Requirement("metadata.name", Operator.IN, ("b",)),))
    request = whole(1, selector=NodeSelector(terms=(term,)))
    assert place(cluster_of(node("a"), node("b")), request) == "b/0"


def test_rank_lists_fitting_nodes_best_first():
    cluster = taken(cluster_of(node("a"), node("b"), node("c", 0)), "b", 0)
    assert [ranked.node for ranked in rank(cluster, whole(1), BEST_FIT)] == ["b", "a"]


def test_explain_names_one_reason_for_each_node_that_does_not_fit():
    cluster = cluster_of(node("a", ready=False), node("b", 0), node("c"))
    assert explain(cluster, whole(1), candidates=["a", "b", "c", "x"]) == {
        "a": Reason.NODE_NOT_READY,
        "b": Reason.NO_GPUS,
        "x": Reason.NODE_UNKNOWN,
    }


@pytest.mark.parametrize("named", [[70], [3, 60, 99], list(range(20, 100)), list(range(100))])
def test_the_best_of_the_candidates_is_found_however_many_are_named(named):
    cluster = cluster_of(*(node(f"n{number}", 1 + number % 8) for number in range(100)))
    names = [f"n{number}" for number in named] + ["unknown"] * 70
    chosen = decide(cluster, whole(1), BEST_FIT, candidates=names)
    ranked = rank(cluster, whole(1), BEST_FIT, candidates=names)
    assert {each.node for each in ranked} == {f"n{number}" for number in named}
    assert chosen.node == ranked[0].node


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_stumbles_over_a_cluster_without_any_gpu(name):
    policy = POLICIES[name].informed(DemandForecast(RequestMix.of([(share(500), 1)]), churn=1.0))
    cluster = cluster_of(node("a", 0), node("b", 0))
    assert rank(cluster, share(500), policy) == ()
    assert isinstance(decide(cluster, share(500), policy), Refusal)
    assert isinstance(plan_gang(cluster, gang(2, share(500)), policy), Refusal)


class Saying(Policy):
    """A policy of one's own that answers with what a function of the number of nodes says."""

    name = "mine"

    def __init__(self, says):
        self._says = says

    def score(self, view, request, rows):
        return self._says(len(rows))


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (lambda number: np.full(number, np.nan), "policy mine gives a node the score nan"),
        (lambda number: np.zeros(number + 1), r"policy mine scores 2 nodes by array\(\[0., 0., 0"),
        (lambda number: np.zeros((number, 2)), "give an array of as many numbers"),
        (lambda number: [0.0] * number, r"by \[0.0, 0.0\]; give an array"),
        (lambda number: None, "policy mine scores 2 nodes by None"),
        (lambda number: np.array(["a"] * number), "give an array of as many numbers"),
    ],
)
def test_a_policy_that_gives_no_number_for_each_node_is_named(says, message):
    with pytest.raises(InvalidScores, match=message):
        decide(cluster_of(node("a"), node("b")), whole(1), Saying(says))


def test_a_fork_knows_its_own_degraded_devices():
    cluster = cluster_of(with_health(node("a", 2), 0, Health.DEGRADED), node("b", 1))
    fork = cluster.fork()
    cluster.set_node(node("a", 2))
    assert place(fork, share(100)) == "b/0"
    assert fork.worn == {"a"}
    assert cluster.worn == set()
    fork.remove_node("a")
    assert fork.worn == set()
