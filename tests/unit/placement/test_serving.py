# SPDX-License-Identifier: Apache-2.0
"""Nodes that serve several kinds: a request gets GPUs of the name it asks by and sees no others."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from placement_builders import (
    BEST_FIT,
    cluster_of,
    device,
    gang,
    node,
    place,
    share,
    shown,
    slices,
    taken,
    whole,
)
from placement_strategies import cases, clusters, requests

from gpupack_placement import (
    POLICIES,
    DemandForecast,
    DeviceUuid,
    Holder,
    Interconnect,
    Placement,
    Reason,
    RequestMix,
    decide,
    explain,
    plan_gang,
)
from gpupack_queue import ModelKeys

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"
MI300X = "AMD Instinct MI300X"


def both(name, ours, theirs, *, resource=NVIDIA, cliques=None, **kw):
    """A node with GPUs of our own, and after these some that another plugin hands out."""
    built = node(name, ours + theirs, cliques=cliques, **kw)
    devices = (
        replace(each, resource=resource, max_shares=0) if each.index >= ours else each
        for each in built.devices
    )
    return replace(built, devices=tuple(devices))


@pytest.mark.parametrize(
    ("request_", "devices"),
    [
        (whole(2), "a/0 a/1"),
        (whole(3, resource=NVIDIA), "a/2 a/3 a/4"),
        (share(300), "a/0"),
        (whole(0), "a"),
    ],
)
def test_a_request_gets_gpus_of_its_own_name(request_, devices):
    assert place(cluster_of(both("a", 2, 3)), request_) == devices


def test_free_gpus_of_another_name_are_of_no_use():
    cluster = taken(cluster_of(both("a", 2, 3)), "a", 2, 3)
    assert place(cluster, whole(2, resource=NVIDIA)) == (
        "0 of 1 node fits: 1 node: fewer than 2 free GPUs (most free on one node: 1); "
        "1 node would fit with 1 GPU less"
    )


def test_a_request_beyond_the_gpus_of_its_resource_name_never_fits():
    refused = decide(cluster_of(both("a", 2, 3)), whole(4, resource=NVIDIA), BEST_FIT)
    assert (refused.reason, refused.never) == (Reason.TOO_FEW_GPUS, True)


def test_a_refusal_names_all_names_that_a_node_has():
    refused = decide(cluster_of(both("a", 2, 3, resource=AMD)), whole(1, resource=NVIDIA), BEST_FIT)
    text = f"its GPUs are requested by another resource name: gpupack.dev/gpu or {AMD}"
    assert (refused.reason, text in refused.message) == (Reason.RESOURCE_NAME_MISMATCH, True)


def test_models_and_memory_are_those_of_the_gpus_of_that_name():
    there = both("a", 1, 1, resource=AMD)
    ours, theirs = there.devices
    theirs = replace(theirs, model=MI300X, memory=192_000)
    cluster = cluster_of(replace(there, devices=(ours, theirs)))
    assert place(cluster, whole(1, models=("MI300X",), resource=AMD)) == "a/1"
    assert explain(cluster, whole(1, models=("MI300X",))) == {"a": Reason.MODEL_MISMATCH}
    assert explain(cluster, whole(1, min_memory=100_000)) == {"a": Reason.GPU_MEMORY_TOO_SMALL}


def test_nvlink_joins_no_gpus_of_different_names():
    cluster = cluster_of(both("a", 1, 2, cliques=[0, 0, 0]))
    linked = {"interconnect": Interconnect.NVLINK}
    assert place(cluster, whole(2, resource=NVIDIA, **linked)) == "a/1 a/2"
    assert explain(cluster, whole(2, **linked)) == {"a": Reason.TOO_FEW_GPUS}


def test_mig_slices_have_names_of_their_own():
    profile = {"profile": "1g.10gb", "parent": DeviceUuid("GPU-cut"), "memory": 10_000}
    cut = [device("a", index, resource=f"{NVIDIA}.mig", **profile) for index in (4, 5)]
    there = both("a", 2, 2)
    cluster = cluster_of(replace(there, devices=(*there.devices, *cut)))
    assert place(cluster, slices("1g.10gb", 2, resource=f"{NVIDIA}.mig")) == "a/4 a/5"
    assert explain(cluster, slices("1g.10gb")) == {"a": Reason.MIG_PROFILE_MISMATCH}
    assert explain(cluster, whole(1, resource=f"{NVIDIA}.mig")) == {"a": Reason.ONLY_MIG_SLICES}


def test_a_gang_does_not_spill_over_to_gpus_of_another_name():
    cluster = cluster_of(both("a", 2, 2), both("b", 1, 3))
    placed = plan_gang(cluster, gang(3, whole(1)), BEST_FIT)
    assert sorted(shown(each) for each in placed) == ["a/0", "a/1", "b/0"]
    refused = plan_gang(cluster, gang(4, whole(1)), BEST_FIT)
    assert "3 of 4 workers fit now; 1 GPU is missing (3 free GPUs in 2 nodes" in refused.message


def test_what_is_held_by_one_name_leaves_the_other_as_it_was():
    cluster = cluster_of(both("a", 2, 2))
    cluster.take("p", decide(cluster, whole(2), BEST_FIT))
    assert place(cluster, whole(2, resource=NVIDIA)) == "a/2 a/3"
    cluster.give_back("p")
    assert place(cluster, whole(2)) == "a/0 a/1"


@pytest.mark.parametrize(("policy", "fits"), [("best-fit", "a"), ("worst-fit", "b")])
def test_a_node_is_as_full_as_its_gpus_of_that_name_are(policy, fits):
    """Node `a` has most GPUs free of all, and of ours the fewest."""
    cluster = taken(cluster_of(node("b", 4), both("a", 4, 4)), "a", 0, 1, 2)
    cluster = taken(cluster, "b", 0)
    assert decide(cluster, share(500), POLICIES[policy]).node == fits


def test_a_request_without_gpus_avoids_free_gpus_of_any_resource_name():
    cluster = cluster_of(both("a", 0, 2), both("b", 1, 1))
    taken(taken(cluster, "b", 0), "b", 1)
    assert decide(cluster, whole(0, cpu=1000), POLICIES["bid-price"]).node == "b"


def test_quotas_count_gpus_of_every_name_under_their_models():
    there = both("a", 2, 3, resource=AMD)
    devices = (replace(d, model=MI300X) if d.resource else d for d in there.devices)
    cluster = cluster_of(replace(there, devices=tuple(devices)))
    keys = ModelKeys(["H100", "MI300X"])
    assert keys.capacity(cluster) == {"H100": 2000, "MI300X": 3000}
    placed = decide(cluster, whole(2, resource=AMD), BEST_FIT)
    assert keys.charge(cluster, [placed]) == {"MI300X": 2000}


def test_a_device_that_changes_its_name_serves_the_new_one():
    cluster = cluster_of(both("a", 2, 0), both("b", 0, 1))
    assert place(cluster, whole(2)) == "a/0 a/1"
    cluster.set_node(both("a", 1, 1))
    assert explain(cluster, whole(2))["a"] is Reason.TOO_FEW_GPUS
    assert place(cluster, whole(1, resource=NVIDIA), candidates=["a"]) == "a/1"


@cases
@given(
    clusters(max_nodes=4),
    requests(),
    st.lists(requests(), max_size=3),
    st.sampled_from(sorted(set(POLICIES) - {"gpu-clustering", "random"})),
    st.sampled_from([0.0, 1.0]),
)
def test_a_decision_is_as_if_there_were_no_gpus_of_other_names(
    cluster, request, others, name, churn
):
    """Except gpu-clustering, which counts all holders of GPUs of a node, and random."""
    assume(request.milli)
    cluster.set_node(both("of-both-names", 1, 1, resource="other"))
    alone = without_others(cluster, request.resource)
    mix = RequestMix.of((each, 1) for each in (request, *others))
    policy, other = (POLICIES[name].informed(DemandForecast(mix, churn)) for _ in range(2))
    for each in (*others, request):
        decide(cluster, each, policy)
    assert answer(decide(cluster, request, policy)) == answer(decide(alone, request, other))


@cases
@given(clusters(), st.lists(requests(), min_size=1, max_size=6), st.sampled_from(sorted(POLICIES)))
def test_what_is_kept_from_decision_to_decision_changes_none(cluster, asked, name):
    """Plans in between are made on overlays, which start with what is kept here."""
    policy = POLICIES[name]
    for number, request in enumerate(asked):
        plan_gang(cluster, gang(2, request), policy)
        decided = decide(cluster, request, policy)
        assert answer(decided) == answer(decide(cluster.fork(), request, policy))
        if isinstance(decided, Placement):
            cluster.take(Holder(f"new{number}"), decided)


def without_others(cluster, resource):
    """The same cluster: nodes of other names alone are closed, as they are to such requests."""
    alone = cluster_of(*cluster.nodes())
    for holder, placement in cluster.held().items():
        alone.adopt(holder, placement)
    for each in cluster.nodes():
        devices = tuple(d for d in each.devices if d.resource == resource)
        if devices:
            alone.set_node(replace(each, devices=devices))
    return alone


def answer(decided):
    return decided if isinstance(decided, Placement) else decided.counts
