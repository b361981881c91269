# SPDX-License-Identifier: Apache-2.0
"""Random clusters against plain-Python references that try every possibility."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from placement_builders import cluster_of
from placement_oracle import choices, clique_of, gang_fits, greedy_fits, shares_of
from placement_strategies import books, cases, clusters, gangs, nodes, policies, requests

from gpupack_placement import (
    POLICIES,
    Health,
    Holder,
    Placement,
    Refusal,
    choose,
    choose_gang,
    decide,
    explain,
    plan_gang,
    rank,
)
from gpupack_placement.miss import Resource


@cases
@given(clusters(), requests(), policies)
def test_decide_succeeds_exactly_where_some_node_can_serve(cluster, request, policy):
    able = {n.name for n in cluster.nodes() if choices(cluster, request, n)}
    answer = decide(cluster, request, policy)
    assert choose(cluster, request, policy) == (answer if able else None)
    assert isinstance(answer, Placement) is bool(able)
    assert set(explain(cluster, request)) == {n.name for n in cluster.nodes()} - able
    assert [r.node in able for r in rank(cluster, request, policy)] == [True] * len(able)


@cases
@given(clusters(), requests(), policies)
def test_a_decision_is_one_of_the_choices_and_changes_nothing(cluster, request, policy):
    before = books(cluster)
    answer = decide(cluster, request, policy)
    if isinstance(answer, Placement):
        node_ = cluster.node(answer.node)
        granted = {grant.uuid for grant in answer.devices}
        assert granted in [{d.uuid for d in c} for c in choices(cluster, request, node_)]
        cluster.take(Holder("new"), answer)
        assert cluster.give_back(Holder("new")) == answer
    assert books(cluster) == before


@st.composite
def worn_clusters(draw):
    """Draw clusters in which some devices are degraded, free or held."""
    cluster = draw(clusters())
    for n in cluster.nodes():
        worn = [d.health is Health.HEALTHY and draw(st.booleans()) for d in n.devices]
        devices = (
            replace(d, health=Health.DEGRADED) if is_worn else d
            for d, is_worn in zip(n.devices, worn, strict=True)
        )
        cluster.set_node(replace(n, devices=tuple(devices)))
    return cluster


@cases
@given(worn_clusters(), requests(), policies)
def test_degraded_devices_serve_only_where_no_node_has_sound_ones_for_it(cluster, request, policy):
    sound = replace(request, healthy_only=True)
    able = {n.name for n in cluster.nodes() if choices(cluster, request, n)}
    best = {n.name for n in cluster.nodes() if choices(cluster, sound, n)}
    placement = choose(cluster, request, policy)
    assert (placement is not None) is bool(able)
    if placement is not None and best:
        health = {d.uuid: d.health for d in cluster.node(placement.node).devices}
        assert all(health[grant.uuid] is Health.HEALTHY for grant in placement.devices)
    ranked = [each.node in best for each in rank(cluster, request, policy)]
    assert ranked == [True] * len(best) + [False] * (len(able) - len(best))


@cases
@given(worn_clusters(), gangs(), policies)
def test_degraded_devices_spoil_no_gang(cluster, gang, policy):
    assert (choose_gang(cluster, gang, policy) is not None) is gang_fits(cluster, gang)


@cases
@given(clusters(fill=12))
def test_nothing_is_ever_oversubscribed_and_whole_and_shares_never_mix(cluster):
    a = cluster.arrays
    assert (a.used_milli <= 1000).all()
    assert (a.used_memory <= a.memory).all()
    assert (a.used_shares <= a.max_shares).all()
    assert (a.used_cpu <= a.cpu).all()
    assert (a.used_pods <= a.pods).all()
    for n in cluster.nodes():
        for device in n.devices:
            held = cluster.holders_of(node=n.name, uuid=device.uuid)
            grants = [g for h in held for g in cluster.placement_of(h).devices]
            here = [g for g in grants if g.uuid == device.uuid]
            millis = [g.milli for g in here]
            assert 1000 not in millis or millis == [1000]
            assert sum(millis) <= 1000
            assert sum(g.memory for g in here) <= device.memory
            assert shares_of(cluster, n.name, device) <= device.max_shares


@cases
@given(clusters(fill=12), st.data())
def test_changes_one_by_one_equal_a_rebuild(cluster, data):
    holders = [h for n in cluster.nodes() for h in cluster.holders_on(n.name)]
    for holder in data.draw(st.sets(st.sampled_from(holders))) if holders else ():
        cluster.give_back(holder)
    for n in cluster.nodes():
        if data.draw(st.booleans()):
            cluster.remove_node(n.name)
            cluster.set_node(data.draw(nodes(n.name)))
    rebuilt = cluster_of(*cluster.nodes())
    for holder in (h for n in cluster.nodes() for h in cluster.holders_on(n.name)):
        rebuilt.adopt(holder, cluster.placement_of(holder))
    assert books(rebuilt) == books(cluster)


@cases
@given(clusters(), gangs(), policies)
def test_refusals_add_up_and_are_the_same_each_time(cluster, asked, policy):
    for answer, again in (
        (
            decide(cluster, asked.roles[0].request, policy),
            decide(cluster.fork(), asked.roles[0].request, policy),
        ),
        (plan_gang(cluster, asked, policy), plan_gang(cluster.fork(), asked, policy)),
    ):
        assert answer == again
        if isinstance(answer, Refusal):
            assert answer.message == again.message
            counted = answer.fitting_nodes + sum(count.nodes for count in answer.counts)
            assert counted == answer.total == len(cluster)


@cases
@given(clusters(max_gpus=3, fill=3), gangs(max_workers=3), policies)
def test_a_gang_is_planned_exactly_when_brute_force_finds_a_way(cluster, asked, policy):
    before = books(cluster)
    answer = plan_gang(cluster, asked, policy)
    assert books(cluster) == before
    assert isinstance(answer, tuple) is gang_fits(cluster, asked)
    if isinstance(answer, tuple):
        check_plan(cluster.fork(), asked, answer)


@cases
@given(clusters(max_gpus=6, fill=10), gangs(max_workers=8), policies)
def test_a_gang_is_planned_wherever_placing_workers_one_by_one_succeeds(cluster, asked, policy):
    answer = plan_gang(cluster, asked, policy)
    assert choose_gang(cluster, asked, policy) == (answer if isinstance(answer, tuple) else None)
    if isinstance(answer, tuple):
        check_plan(cluster.fork(), asked, answer)
    else:
        assert not greedy_fits(cluster, asked, POLICIES.values())


def check_plan(cluster, asked, placements):
    assert len(placements) == asked.workers
    for index, planned in enumerate(placements):
        cluster.take(Holder(f"worker {index}"), planned)
    names = [planned.node for planned in placements]
    granted = {grant.uuid for planned in placements for grant in planned.devices}
    cliques = {clique_of(n, d) for n in cluster.nodes() for d in n.devices if d.uuid in granted}
    assert not asked.spread.same_clique or len(cliques) == 1
    assert len(set(names)) <= (asked.spread.max_nodes or asked.workers)
    assert not asked.spread.one_worker_per_node or len(set(names)) == asked.workers


@cases
@given(clusters(fill=12), requests(), policies)
def test_the_nearest_miss_makes_as_many_nodes_fit_as_it_says_and_less_makes_none(
    cluster, request, policy
):
    answer = decide(cluster, request, policy)
    if isinstance(answer, Refusal):
        check_nearest(answer, lambda less: len(rank(cluster, less, policy)))
        if answer.nearest:
            assert (
                len(rank(cluster, answer.nearest.applied(request), policy)) == answer.nearest.nodes
            )


@cases
@given(clusters(fill=12), gangs(), policies)
def test_the_nearest_miss_makes_the_gang_fit_and_less_does_not(cluster, asked, policy):
    def fits(less):
        return isinstance(plan_gang(cluster, asked.with_requests([less]), policy), tuple)

    answer = plan_gang(cluster, asked, policy)
    if isinstance(answer, Refusal):
        check_nearest(answer, fits)


def check_nearest(refusal, fits):
    request, miss = refusal.request, refusal.nearest
    part = Fraction(miss.less, miss.resource.of(request)) if miss else Fraction(1)
    assert miss is None or fits(miss.applied(request))
    for resource in Resource:
        asked = resource.of(request)
        smaller = int(asked * (1 - part)) + 1
        assert smaller >= asked or not fits(resource.reduced(request, smaller))


@cases
@given(clusters(), requests(), policies)
def test_what_never_fits_does_not_fit_when_everything_is_given_back(cluster, request, policy):
    answer = decide(cluster, request, policy)
    for holder in [h for n in cluster.nodes() for h in cluster.holders_on(n.name)]:
        cluster.give_back(holder)
    if isinstance(answer, Refusal) and answer.never:
        assert isinstance(decide(cluster, request, policy), Refusal)
