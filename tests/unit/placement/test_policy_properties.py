# SPDX-License-Identifier: Apache-2.0
"""What the policies compute over all nodes at once is what their formulas say of each node."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from placement_builders import cluster_of
from placement_strategies import MODELS, cases, clusters, nodes, requests
from policy_reference import FORMULAS, best_node, fgd, fragmentation, fullest, state, whole_weights

from gpupack_placement import (
    POLICIES,
    DemandForecast,
    Holder,
    Placement,
    RequestMix,
    decide,
    policy_named,
)
from gpupack_placement.fragmentation import Fragmentation
from gpupack_placement.policies.fgd import typical_pods

mixes = st.lists(st.tuples(requests(), st.integers(1, 9)), min_size=1, max_size=6).map(
    RequestMix.of
)
formulas = st.sampled_from(sorted(FORMULAS))


@st.composite
def uniform_clusters(draw, max_nodes=4):
    """As clusters(), each node with GPUs of one kind, like nearly all that there are."""
    drawn = [draw(nodes(f"n{i}", 6)) for i in range(draw(st.integers(1, max_nodes)))]
    cluster = cluster_of(*(one_kind(n, draw(st.sampled_from(MODELS))) for n in drawn))
    for number in range(draw(st.integers(0, 10))):
        answer = decide(cluster, draw(requests()), POLICIES["first-fit"])
        if isinstance(answer, Placement):
            cluster.take(Holder(f"old{number}"), answer)
    return cluster


def one_kind(node, model):
    return replace(node, devices=tuple(replace(d, model=model, memory=20) for d in node.devices))


every_cluster = st.one_of(uniform_clusters(), clusters(fill=10))


@cases
@given(every_cluster, requests(), formulas)
def test_a_policy_decides_as_its_formula_does_node_by_node(cluster, request, name):
    node, _ = best_node(cluster, request, FORMULAS[name])
    answer = decide(cluster, request, POLICIES[name])
    assert (answer.node if isinstance(answer, Placement) else None) == node
    if node and request.share:
        assert alike(cluster, answer) == likes(fullest(state(cluster, node, request), request))


@cases
@given(every_cluster, st.lists(requests(), min_size=1, max_size=3), mixes, st.data())
def test_fgd_decides_as_the_paper_does_whatever_it_remembers(cluster, asked, mix, data):
    typical = typical_pods(mix)
    policy = POLICIES["fgd"].informed(DemandForecast(mix))
    for number, request in enumerate(asked * 2):
        node, _ = best_node(cluster, request, lambda here, r: fgd(here, r, typical)[0])
        answer = decide(cluster, request, policy)
        assert (answer.node if isinstance(answer, Placement) else None) == node
        if node is None:
            continue
        if request.share:
            assert alike(cluster, answer) == likes(
                fgd(state(cluster, node, request), request, typical)[1]
            )
        cluster.take(Holder(f"new{number}"), answer)
        held = [h for n in cluster.nodes() for h in cluster.holders_on(n.name)]
        if data.draw(st.booleans()):
            cluster.give_back(data.draw(st.sampled_from(held)))


@cases
@given(every_cluster, mixes)
def test_fragmentation_is_what_the_paper_calls_so(cluster, mix):
    measure, weights = Fragmentation(mix), whole_weights(mix)
    found = (measure.of(cluster.arrays) * measure.total).round().astype(int)
    for n in cluster.nodes():
        assert found[cluster.row(n.name)] == fragmentation(state(cluster, n.name), weights)


@cases
@given(every_cluster, requests(), mixes, st.sampled_from(["0.7*fgd+0.3*best-fit", "fgd+worst-fit"]))
def test_a_combination_adds_up_scores_that_are_brought_to_one_scale(cluster, request, mix, name):
    parts = {"0.7*fgd+0.3*best-fit": (0.7, 0.3, "best-fit"), "fgd+worst-fit": (1, 1, "worst-fit")}
    of_fgd, of_other, other = parts[name]
    typical = typical_pods(mix)
    _, ours = best_node(cluster, request, lambda here, r: fgd(here, r, typical)[0])
    _, theirs = best_node(cluster, request, FORMULAS[other])
    ours, theirs = scaled(ours), scaled(theirs)
    total = {n: 0.0 + of_fgd * ours[n] + of_other * theirs[n] for n in ours}
    best = min(total, key=lambda n: (-total[n], state(cluster, n).order), default=None)
    answer = decide(cluster, request, policy_named(name).informed(DemandForecast(mix)))
    assert (answer.node if isinstance(answer, Placement) else None) == best


def scaled(scores):
    least, largest = min(scores.values(), default=0), max(scores.values(), default=0)
    if least == largest:
        return dict.fromkeys(scores, 0.0)
    return {n: (s - least) * (100.0 / (largest - least)) for n, s in scores.items()}


@cases
@given(every_cluster, requests(), mixes, st.sampled_from(sorted(POLICIES)))
def test_the_same_state_gives_the_same_decision_with_and_without_memory(
    cluster, request, mix, name
):
    policy = POLICIES[name].informed(DemandForecast(mix))
    first = decide(cluster, request, policy)
    assert decide(cluster.fork(), request, policy) == first
    if isinstance(first, Placement):
        cluster.take(Holder("new"), first)
        decide(cluster, request, policy)
        cluster.give_back(Holder("new"))
    assert decide(cluster, request, policy) == first
    assert decide(cluster, request, POLICIES[name].informed(DemandForecast(mix))) == first


def alike(cluster, answer):
    """What counts of the GPU that a share got; of idle ones that are alike devices.py chooses."""
    here, uuid = cluster.node(answer.node), answer.devices[0].uuid
    column = [d.uuid for d in sorted(here.devices, key=lambda d: d.index)].index(uuid)
    return next(likes(g) for g in state(cluster, answer.node).gpus if g.column == column)


def likes(gpu):
    return gpu.milli, gpu.memory_left, gpu.model, gpu.column if gpu.milli < 1000 else None
