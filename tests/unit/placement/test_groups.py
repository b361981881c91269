# SPDX-License-Identifier: Apache-2.0
"""Shares of one GPU are of one group, and limited ones go where they can be limited."""

from dataclasses import replace

import pytest
from placement_builders import BEST_FIT, cluster_of, gang, node, place, whole

from gpupack_placement import (
    POLICIES,
    DeviceUuid,
    Grant,
    Holder,
    MiB,
    MilliGpu,
    NodeName,
    OverAllocated,
    Placement,
    Reason,
    Request,
    Share,
    decide,
    plan_gang,
)
from gpupack_placement.snapshot import dump, load


def share(milli, group="", *, limited=False, memory=0):
    return Request(share=Share(MilliGpu(milli), MiB(memory), group, limited=limited))


def held(cluster, holder, index, *, group="", milli=300, adopted=False):
    grant = Grant(DeviceUuid(f"a/{index}"), MilliGpu(milli), MiB(1000), group)
    take = cluster.adopt if adopted else cluster.take
    take(Holder(holder), Placement(NodeName("a"), (grant,)))
    return cluster


def limiting(name, gpus):
    made = node(name, gpus)
    return replace(made, devices=tuple(replace(each, limits=True) for each in made.devices))


def test_a_share_goes_to_the_gpu_of_its_group():
    cluster = held(held(cluster_of(node("a", 3)), "x", 1, group="team-a"), "y", 2)
    assert place(cluster, share(300, "team-a")) == "a/1"
    assert place(cluster, share(300)) == "a/2"
    assert place(cluster, share(300, "team-b")) == "a/0"


@pytest.mark.parametrize("policy", ["bid-price", "gpu-packing"])
def test_a_policy_sees_no_free_share_on_gpus_of_another_group(policy):
    cluster = held(cluster_of(node("a", 2), node("b", 2)), "x", 0, milli=700)
    grant = Grant(DeviceUuid("b/1"), MilliGpu(300), MiB(1000), "team-a")
    cluster.take(Holder("y"), Placement(NodeName("b"), (grant,)))
    assert place(cluster, share(300, "team-a"), POLICIES[policy]) == "b/1"


def test_a_gpu_that_another_group_shares_is_refused_and_said_so():
    cluster = held(cluster_of(node("a", 1)), "x", 0, group="team-a")
    refused = decide(cluster, share(300), BEST_FIT)
    assert refused.reason is Reason.SHARED_BY_OTHERS
    assert "have shares of another group" in refused.message
    assert not refused.never


def test_the_last_share_of_a_group_frees_the_gpu_for_the_others():
    cluster = held(cluster_of(node("a", 1)), "x", 0, group="team-a")
    held(cluster, "y", 0, group="team-a")
    cluster.give_back(Holder("x"))
    assert decide(cluster, share(300), BEST_FIT).reason is Reason.SHARED_BY_OTHERS
    cluster.give_back(Holder("y"))
    assert place(cluster, share(300)) == "a/0"


def test_no_gpu_is_taken_that_another_group_shares():
    with pytest.raises(OverAllocated, match="shares of another group"):
        held(held(cluster_of(node("a", 1)), "x", 0, group="team-a"), "y", 0)


def test_no_share_joins_a_gpu_on_which_another_component_mixed_groups():
    cluster = held(cluster_of(node("a", 1)), "x", 0, group="team-a")
    held(cluster, "y", 0, adopted=True)
    for group in ("team-a", ""):
        assert decide(cluster, share(300, group), BEST_FIT).reason is Reason.SHARED_BY_OTHERS
    cluster.give_back(Holder("x"))
    assert decide(cluster, share(300), BEST_FIT).reason is Reason.SHARED_BY_OTHERS
    cluster.give_back(Holder("y"))
    assert place(cluster, share(300)) == "a/0"


def test_a_gangs_workers_share_a_gpu_and_leave_those_of_others():
    cluster = held(cluster_of(node("a", 3)), "x", 0, milli=100)
    placed = plan_gang(cluster, gang(4, share(500, "team-a")), BEST_FIT)
    assert sorted(each.devices[0].uuid for each in placed) == ["a/1", "a/1", "a/2", "a/2"]
    assert {each.devices[0].group for each in placed} == {"team-a"}


def test_whole_gpus_have_no_group():
    cluster = held(cluster_of(node("a", 2)), "x", 0, group="team-a")
    assert place(cluster, whole(1)) == "a/1"


def test_what_a_fork_learns_of_groups_the_original_does_not():
    cluster = cluster_of(node("a", 1))
    held(cluster.fork(), "x", 0, group="team-a")
    held(cluster, "y", 0, group="team-b")
    assert place(cluster, share(300, "team-b")) == "a/0"
    assert decide(cluster, share(300, "team-a"), BEST_FIT).reason is Reason.SHARED_BY_OTHERS


def test_a_limited_share_goes_where_it_can_be_limited():
    cluster = cluster_of(node("a", 1), limiting("b", 1))
    assert place(cluster, share(300, "limited/", limited=True)) == "b/0"


def test_where_no_share_is_limited_waiting_is_futile():
    refused = decide(cluster_of(node("a", 1)), share(300, "limited/", limited=True), BEST_FIT)
    assert (refused.reason, refused.never) == (Reason.NO_LIMITED_SHARES, True)


def test_groups_and_limits_are_part_of_a_snapshot():
    cluster = held(cluster_of(limiting("a", 1)), "x", 0, group="team-a")
    loaded = load(dump(cluster))
    assert loaded.nodes() == cluster.nodes()
    assert decide(loaded, share(300), BEST_FIT).reason is Reason.SHARED_BY_OTHERS
