# SPDX-License-Identifier: Apache-2.0
"""Random clusters against plain-Python references that try every possibility.

GPUPACK_TEST_CASES sets how many cases each property gets (25; run thousands after a change).
"""

import os
from dataclasses import replace
from itertools import combinations

from core_builders import cluster_of, gang, node, share, whole
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupack_core import (
    POLICIES,
    Grant,
    Health,
    Holder,
    Interconnect,
    Placement,
    Refusal,
    decide,
    explain,
    matches_model,
    plan_gang,
    rank,
)

MODELS = ("H100", "T4")
cases = settings(max_examples=int(os.environ.get("GPUPACK_TEST_CASES", "25")), deadline=None)


@st.composite
def nodes(draw, name, most=4):
    base = node(
        name,
        draw(st.integers(0, most)),
        cpu=draw(st.sampled_from([1000, 4000])),
        memory=draw(st.sampled_from([2, 8])),
        ready=draw(st.integers(0, 5)) > 0,
        resource=draw(st.sampled_from(["", "", "", "other"])),
        cordoned=draw(st.integers(0, 5)) == 0,
    )
    devices = tuple(
        replace(
            device,
            model=draw(st.sampled_from(MODELS)),
            memory=draw(st.sampled_from([10, 20])),
            clique=draw(st.sampled_from([None, 0, 5])),
            numa_node=draw(st.sampled_from([None, 0, 1])),
            max_shares=draw(st.sampled_from([1, 2, 1000])),
            health=draw(st.sampled_from([Health.HEALTHY] * 6 + [Health.DEGRADED, Health.FAILED])),
        )
        for device in base.devices
    )
    return replace(base, devices=devices)


@st.composite
def requests(draw):
    extra = {
        "models": draw(st.sampled_from([(), (), ("H100",), MODELS])),
        "min_memory": draw(st.sampled_from([0, 0, 15])),
        "cpu": draw(st.sampled_from([0, 500, 1500])),
        "memory": draw(st.sampled_from([0, 1])),
        "resource": draw(st.sampled_from(["", "", "", "other"])),
    }
    if draw(st.booleans()):
        return share(draw(st.sampled_from([200, 400, 700])), draw(st.integers(0, 12)), **extra)
    return whole(draw(st.integers(0, 3)), interconnect=draw(st.sampled_from(Interconnect)), **extra)


policies = st.sampled_from(list(POLICIES.values()))


@st.composite
def clusters(draw, most_nodes=3, most_gpus=4, fill=6):
    count = draw(st.integers(0, most_nodes))
    cluster = cluster_of(*(draw(nodes(f"n{i}", most_gpus)) for i in range(count)))
    for number in range(draw(st.integers(0, fill))):
        answer = decide(cluster, draw(requests()), draw(policies))
        if isinstance(answer, Placement):
            cluster.take(Holder(f"old{number}"), answer)
    return cluster


def books(cluster):
    """All numbers by node name, independent of rows and padding."""
    return {n.name: _row(cluster, n.name) for n in cluster.nodes()}


def _row(cluster, name):
    a, row = cluster.arrays, cluster.row(name)
    per_node = (a.free_gpu_milli, a.free_cpu, a.free_ram, a.used_cpu, a.used_ram, a.gpus)
    return cluster.free_devices(name), tuple(int(vector[row]) for vector in per_node)


def choices(cluster, request, here):
    """Every set of devices of the node that could serve the request now."""
    a, row = cluster.arrays, cluster.row(here.name)
    if here.cordoned or not here.ready:
        return []
    if request.needs_gpu and here.resource != request.resource:
        return []
    if a.free_cpu[row] < request.cpu or a.free_ram[row] < request.memory:
        return []
    free = {device.uuid: device for device in cluster.free_devices(here.name)}
    able = [d for d in here.devices if serves(d, free[d.uuid], request)]
    if request.share:
        able = [d for d in able if shares_of(cluster, here.name, d) < d.max_shares]
    sets = list(combinations(able, 1 if request.share else request.gpus))
    return [s for s in sets if not request.needs_clique or linked(s)]


def serves(device, free, request):
    asked = request.models
    if device.health is not Health.HEALTHY or device.memory < request.min_memory:
        return False
    if asked and not any(matches_model(m, device.model) for m in asked):
        return False
    if request.share is None:
        return free.milli == 1000
    return free.milli >= request.share.milli and free.memory >= request.share.memory


def shares_of(cluster, name, device):
    held = cluster.holders_of(node=name, uuid=device.uuid)
    grants = [g for h in held for g in cluster.placement_of(h).devices]
    return sum(g.uuid == device.uuid and g.milli < 1000 for g in grants)


def linked(devices):
    cliques = {device.clique for device in devices}
    return len(cliques) == 1 and None not in cliques


def gang_fits(cluster, asked, used=frozenset(), placed=0):
    """Try every node and every set of devices for each worker in turn."""
    if placed == asked.workers:
        return True
    for here in cluster.nodes():
        crowded = asked.spread.one_worker_per_node and here.name in used
        if crowded or len(used | {here.name}) > (asked.spread.max_nodes or 99):
            continue
        for devices in choices(cluster, asked.request, here):
            fork = cluster.fork()
            fork.take(Holder(f"w{placed}"), placement(here, devices, asked.request))
            if gang_fits(fork, asked, used | {here.name}, placed + 1):
                return True
    return False


def placement(here, devices, request):
    part = request.share
    milli = part.milli if part else 1000
    grants = tuple(Grant(d.uuid, milli, part.memory if part else d.memory) for d in devices)
    return Placement(here.name, grants, request.cpu, request.memory)


@cases
@given(clusters(), requests(), policies)
def test_decide_succeeds_exactly_where_some_node_can_serve(cluster, request, policy):
    able = {n.name for n in cluster.nodes() if choices(cluster, request, n)}
    answer = decide(cluster, request, policy)
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


@cases
@given(clusters(fill=12))
def test_nothing_is_ever_oversubscribed_and_whole_and_shares_never_mix(cluster):
    a = cluster.arrays
    assert (a.used_milli <= 1000).all()
    assert (a.used_memory <= a.memory).all()
    assert (a.used_shares <= a.max_shares).all()
    assert (a.used_cpu <= a.cpu).all()
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
@given(clusters(), requests(), policies, st.integers(1, 4))
def test_refusals_add_up_and_are_the_same_each_time(cluster, request, policy, workers):
    for answer, again in (
        (decide(cluster, request, policy), decide(cluster.fork(), request, policy)),
        (
            plan_gang(cluster, gang(workers, request), policy),
            plan_gang(cluster.fork(), gang(workers, request), policy),
        ),
    ):
        assert answer == again
        if isinstance(answer, Refusal):
            assert answer.message == again.message
            assert sum(count.nodes for count in answer.counts) == answer.total == len(cluster)


@cases
@given(
    clusters(most_gpus=3, fill=3),
    requests(),
    policies,
    st.integers(1, 3),
    st.sampled_from([{}, {"max_nodes": 1}, {"max_nodes": 2}, {"one_worker_per_node": True}]),
)
def test_a_gang_is_planned_exactly_when_brute_force_finds_a_way(
    cluster, request, policy, workers, spread
):
    before, asked = books(cluster), gang(workers, request, **spread)
    answer = plan_gang(cluster, asked, policy)
    assert books(cluster) == before
    assert isinstance(answer, tuple) is gang_fits(cluster, asked)
    if isinstance(answer, tuple):
        check_plan(cluster.fork(), asked, answer)


def check_plan(cluster, asked, placements):
    assert len(placements) == asked.workers
    for index, planned in enumerate(placements):
        cluster.take(Holder(f"worker {index}"), planned)
    names = [planned.node for planned in placements]
    assert len(set(names)) <= (asked.spread.max_nodes or asked.workers)
    assert not asked.spread.one_worker_per_node or len(set(names)) == asked.workers


@cases
@given(clusters(), requests(), policies)
def test_what_never_fits_does_not_fit_when_everything_is_given_back(cluster, request, policy):
    answer = decide(cluster, request, policy)
    for holder in [h for n in cluster.nodes() for h in cluster.holders_on(n.name)]:
        cluster.give_back(holder)
    if isinstance(answer, Refusal) and answer.never:
        assert isinstance(decide(cluster, request, policy), Refusal)
