# SPDX-License-Identifier: Apache-2.0
"""Gangs whose workers have different requests."""

import pytest
from hypothesis import given
from placement_builders import (
    BEST_FIT,
    FIRST_FIT,
    cluster_of,
    gang,
    node,
    share,
    shown,
    taken,
    whole,
)
from placement_oracle import clique_of, gang_fits
from placement_strategies import books, cases, gangs_of_roles, open_clusters, policies

from gpupack_placement import (
    Gang,
    Holder,
    Interconnect,
    InvalidRequest,
    Reason,
    Refusal,
    Role,
    Spread,
    choose_gang,
    plan_gang,
)
from gpupack_placement.gang import has_slots, never_fits
from gpupack_placement.role_search import MAX_STEPS, RoleSearch


def roles(*each, **spread):
    """Each: name, workers, request and, where it has limits, a Spread."""
    return Gang(tuple(Role(*of) for of in each), Spread(**spread))


def places(cluster, asked, policy=BEST_FIT):
    return [shown(each) for each in plan_gang(cluster, asked, policy)]


def test_a_leader_and_its_workers_are_placed_together_in_the_order_of_the_roles():
    asked = roles(("leader", 1, whole(1)), ("worker", 2, whole(3)))
    assert places(cluster_of(node("a", 4), node("b", 4)), asked) == [
        "a/3",
        "a/0 a/1 a/2",
        "b/0 b/1 b/2",
    ]


def test_router_prefill_and_decode_may_differ_in_everything():
    cluster = cluster_of(node("a", 4), node("b", 2, model="Tesla T4"))
    asked = roles(
        ("router", 2, whole(0, cpu=1000)),
        ("prefill", 1, whole(4, models=("H100",))),
        ("decode", 3, share(500, models=("T4",))),
    )
    found = plan_gang(cluster, asked, FIRST_FIT)
    assert [each.node for each in found[2:]] == ["a", "b", "b", "b"]
    assert [(len(each.devices), each.cpu) for each in found[:2]] == [(0, 1000)] * 2


def test_no_role_is_placed_unless_all_are():
    cluster = cluster_of(node("a", 4))
    before = books(cluster)
    asked = roles(("leader", 1, whole(1)), ("worker", 1, whole(4)))
    assert choose_gang(cluster, asked, BEST_FIT) is None
    assert books(cluster) == before


def test_the_order_of_the_roles_does_not_decide_whether_they_fit():
    cluster = cluster_of(node("a", 4), node("b", 3))
    small, large = ("small", 3, whole(1)), ("large", 1, whole(4))
    for asked in (roles(small, large), roles(large, small)):
        assert isinstance(plan_gang(cluster, asked, BEST_FIT), tuple)


def test_a_way_is_found_where_the_largest_role_first_leaves_none():
    """The policy prefers the node with the only nic for the worker of 2 GPUs."""
    cluster = cluster_of(node("a", 2, extended=(("nic", 1),)), node("b", 4))
    asked = roles(("worker", 1, whole(2)), ("io", 2, whole(1, extended=(("nic", 1),))))
    assert isinstance(plan_gang(cluster, asked, BEST_FIT), Refusal)
    asked = roles(("worker", 1, whole(2)), ("io", 1, whole(1, extended=(("nic", 1),))))
    assert places(cluster, asked) == ["b/0 b/1", "a/0"]


def test_the_search_chooses_devices_that_leave_a_clique_for_another_role():
    linked = node("a", 4, cliques=[0, 0, 1, 1])
    asked = roles(("pair", 1, whole(2, interconnect=Interconnect.NVLINK)), ("single", 2, whole(1)))
    assert len(places(cluster_of(linked), asked)) == 3


def test_the_node_limit_counts_the_nodes_of_all_roles():
    cluster = cluster_of(node("a", 2), node("b", 4), node("c", 6))
    asked = roles(("one", 2, whole(1)), ("two", 2, whole(2)), max_nodes=1)
    assert {each.node for each in plan_gang(cluster, asked, BEST_FIT)} == {"c"}
    more = roles(("one", 2, whole(1)), ("two", 3, whole(2)), max_nodes=1)
    refused = plan_gang(cluster, more, BEST_FIT)
    assert (refused.reason, refused.never) == (Reason.SPREAD_LIMIT, True)
    assert refused.message.startswith(
        "gang of 2 roles and 5 workers: each role fits, but not all of them on at most 1 node; "
    )


def test_a_role_has_limits_of_its_own():
    cluster = cluster_of(node("a", 4), node("b", 4), node("c", 4))
    asked = roles(
        ("apart", 3, whole(1), Spread(one_worker_per_node=True)),
        ("near", 2, whole(1), Spread(max_nodes=1)),
    )
    nodes = [each.node for each in plan_gang(cluster, asked, BEST_FIT)]
    assert len(set(nodes[:3])) == 3
    assert len(set(nodes[3:])) == 1


def test_all_roles_on_different_nodes():
    cluster = cluster_of(node("a", 4), node("b", 2), node("c", 1))
    asked = roles(("two", 1, whole(2)), ("one", 2, whole(1)), one_worker_per_node=True)
    nodes = [each.node for each in plan_gang(cluster, asked, BEST_FIT)]
    assert len(set(nodes)) == 3
    fewer = cluster_of(node("a", 4), node("b", 2))
    assert plan_gang(fewer, asked, BEST_FIT).reason is Reason.SPREAD_LIMIT


def test_all_roles_in_one_clique():
    cluster = cluster_of(node("a", 6, cliques=[0, 0, 0, 1, 1, 1]))
    asked = roles(("one", 1, whole(1)), ("two", 1, whole(2)), same_clique=True)
    assert places(cluster, asked) in (["a/0", "a/1 a/2"], ["a/2", "a/0 a/1"])
    assert never_fits(cluster, roles(("one", 2, whole(1)), ("two", 1, whole(2)), same_clique=True))


@pytest.mark.parametrize(
    ("each", "spread", "why"),
    [
        ([], {}, "a gang needs a role"),
        ([("a", 1, whole(1)), ("a", 1, whole(2))], {}, "two roles are named a"),
        ([(" ", 1, whole(1))], {}, "a role needs a name"),
        ([("a", 0, whole(1))], {}, "workers is 0"),
        (
            [("a", 1, whole(1)), ("b", 3, whole(1), Spread(2, one_worker_per_node=True))],
            {},
            "role b: 3 workers on different nodes need max_nodes of at least 3, not 2",
        ),
        (
            [("a", 2, whole(1)), ("b", 2, whole(1))],
            {"max_nodes": 3, "one_worker_per_node": True},
            "4 workers on different nodes need max_nodes of at least 4, not 3",
        ),
        (
            [("a", 1, whole(0)), ("b", 1, whole(1))],
            {"same_clique": True},
            "role a: same_clique is a rule about GPUs",
        ),
        (
            [("a", 1, whole(1)), ("b", 1, whole(1))],
            {"same_clique": True, "one_worker_per_node": True},
            "workers in one clique are on one node, not on one each",
        ),
        (
            [("a", 1, whole(1)), ("b", 2, whole(1), Spread(same_clique=True))],
            {"one_worker_per_node": True},
            "role b: workers in one clique are on one node, not on one each",
        ),
    ],
)
def test_a_gang_that_contradicts_itself_is_refused(each, spread, why):
    with pytest.raises(InvalidRequest) as error:
        roles(*each, **spread)
    assert why in str(error.value)


def test_a_gang_of_one_role_is_the_same_with_limits_of_the_role():
    cluster = cluster_of(node("small", 1), node("wide", 3), node("large", 4))
    limit = Spread(max_nodes=2)
    of_gang = plan_gang(cluster, gang(7, whole(1), max_nodes=2), BEST_FIT)
    assert plan_gang(cluster, roles(("worker", 7, whole(1), limit)), BEST_FIT) == of_gang


def test_the_refusal_names_the_role_that_does_not_fit():
    cluster = taken(cluster_of(node("a", 4), node("b", 4)), "a", 0)
    asked = roles(("leader", 1, whole(1)), ("worker", 2, whole(4)))
    refused = plan_gang(cluster, asked, BEST_FIT)
    assert (refused.role, refused.placed, refused.never) == ("worker", 1, True)
    assert refused.message == (
        "gang of 2 roles and 3 workers: role worker: 2 workers × 4 GPUs: 1 of 2 workers fit "  # noqa: RUF001
        "now; 1 GPU is missing (7 free GPUs in 2 nodes, 8 requested); 1 of 2 nodes have room for "
        "a worker, the others do not: 1 node: fewer than 4 free GPUs (most free on one node: 3); "
        "the gang would fit with 1 GPU less for each worker of role worker; "
        "it would not fit on the empty cluster either"
    )


def test_the_refusal_says_that_a_role_fits_only_without_the_others():
    cluster = cluster_of(node("a", 4), node("b", 4))
    refused = plan_gang(cluster, roles(("leader", 1, whole(1)), ("worker", 2, whole(4))), BEST_FIT)
    assert (refused.role, refused.reason) == ("leader", Reason.TOO_FEW_FREE_GPUS)
    assert "with the other roles placed, role leader: 1 worker" in refused.message


def test_a_gang_that_the_empty_cluster_takes_is_not_called_impossible():
    cluster = taken(cluster_of(node("a", 4), node("b", 4)), "a", 0)
    asked = roles(("leader", 1, whole(2)), ("worker", 1, whole(4)), max_nodes=2)
    assert not plan_gang(taken(cluster, "b", 0), asked, BEST_FIT).never


def test_a_search_beyond_its_bound_proves_nothing(monkeypatch):
    cluster = cluster_of(node("a", 2, extended=(("nic", 1),)), node("b", 4))
    asked = roles(("worker", 1, whole(2)), ("io", 1, whole(1, extended=(("nic", 1),))))
    assert isinstance(plan_gang(cluster, asked, BEST_FIT), tuple)
    monkeypatch.setattr("gpupack_placement.role_search.MAX_STEPS", 1)
    found = RoleSearch(cluster, asked, cluster.among(None)).run()
    assert (found.placements, found.is_exact) == (None, False)
    refused = plan_gang(cluster, asked, BEST_FIT)
    assert isinstance(refused, Refusal)
    assert not refused.never


def test_a_large_gang_is_searched_within_the_bound():
    """Prefill and decode workers share no node evenly, and a node limit rules out the policy."""
    cluster = cluster_of(*(node(f"n{number:02}") for number in range(40)))
    asked = roles(
        ("router", 1, whole(0)), ("prefill", 16, whole(2)), ("decode", 16, whole(4)), max_nodes=12
    )
    search = RoleSearch(cluster, asked, cluster.among(None))
    found = search.run()
    assert found.placements is not None
    assert search.steps_taken < MAX_STEPS


@cases
@given(open_clusters(max_gpus=3), gangs_of_roles(max_workers=2), policies)
def test_roles_are_placed_exactly_when_brute_force_finds_a_way(cluster, asked, policy):
    before, possible = books(cluster), gang_fits(cluster, asked)
    answer = plan_gang(cluster, asked, policy)
    assert books(cluster) == before
    assert choose_gang(cluster, asked, policy) == (answer if isinstance(answer, tuple) else None)
    assert isinstance(answer, tuple) is possible
    assert has_slots(cluster, asked) or not possible
    if isinstance(answer, tuple):
        check_plan(cluster.fork(), asked, answer)
    else:
        assert never_fits(cluster, asked)
        assert answer.message == plan_gang(cluster.fork(), asked, policy).message
        counted = answer.fitting_nodes + sum(count.nodes for count in answer.counts)
        assert counted == answer.total == len(cluster)


@cases
@given(open_clusters(max_gpus=3), gangs_of_roles(max_workers=2))
def test_the_search_alone_finds_a_way_exactly_when_there_is_one(cluster, asked):
    found = RoleSearch(cluster, asked, cluster.among(None)).run()
    assert found.is_exact
    assert (found.placements is not None) is gang_fits(cluster, asked)
    if found.placements is not None:
        check_plan(cluster.fork(), asked, [each for role in found.placements for each in role])


def check_plan(cluster, asked, placements):
    by_role = {role.name: [] for role in asked.roles}
    for index, (role, planned) in enumerate(
        zip(asked.role_of_each_worker(), placements, strict=True)
    ):
        request = role.request
        assert len(planned.devices) == request.devices
        assert (planned.cpu, planned.extended) == (request.cpu, request.extended)
        cluster.take(Holder(f"worker {index}"), planned)
        by_role[role.name].append(planned)
    limited = [(asked.spread, placements)]
    limited += [(role.spread, by_role[role.name]) for role in asked.roles]
    for spread, placed in limited:
        nodes = {planned.node for planned in placed}
        granted = {grant.uuid for planned in placed for grant in planned.devices}
        cliques = {clique_of(n, d) for n in cluster.nodes() for d in n.devices if d.uuid in granted}
        assert len(nodes) <= (spread.max_nodes or len(placed))
        assert not spread.one_worker_per_node or len(nodes) == len(placed)
        assert not spread.same_clique or len(cliques) == 1
