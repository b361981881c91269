# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_builders import (
    BEST_FIT,
    cluster_of,
    mig,
    mig_devices,
    node,
    place,
    share,
    slices,
    taken,
    whole,
)
from placement_oracle import best_cost, cost_of
from placement_strategies import cases

from gpupack_placement import POLICIES, OverAllocated, Placement, Reason, decide


def test_a_share_goes_to_the_fullest_gpu_that_fits():
    cluster = cluster_of(node("a", 3))
    taken(cluster, "a", 1, milli=300, memory=1000)
    taken(cluster, "a", 2, milli=600, memory=1000)
    assert place(cluster, share(400)) == "a/2"
    assert place(cluster, share(401)) == "a/1"
    assert place(cluster, share(800)) == "a/0"


def test_a_share_needs_its_memory_on_the_same_gpu():
    cluster = taken(cluster_of(node("a", 2)), "a", 0, milli=100, memory=70_000)
    assert place(cluster, share(100, 10_000)) == "a/0"
    assert place(cluster, share(100, 10_001)) == "a/1"


def test_of_equally_full_gpus_the_one_with_less_memory_left_then_the_first():
    cluster = cluster_of(node("a", 3))
    taken(cluster, "a", 1, milli=500, memory=1000)
    taken(cluster, "a", 2, milli=500, memory=2000)
    assert place(cluster, share(100)) == "a/2"
    assert place(cluster_of(node("b", 2)), share(100)) == "b/0"


def test_milli_gpu_left_counts_before_memory_left():
    cluster = taken(cluster_of(node("a", 2)), "a", 0, milli=100, memory=50_000)
    taken(cluster, "a", 1, milli=500, memory=1000)
    assert place(cluster, share(100)) == "a/1"


def test_whole_and_shared_never_meet_on_one_gpu():
    cluster = taken(cluster_of(node("a", 2)), "a", 0, milli=1, memory=1)
    assert place(cluster, whole(1)) == "a/1"
    taken(cluster, "a", 1)
    assert place(cluster, share(999)) == "a/0"
    assert "fewer than 1 free GPU " in place(cluster, whole(1))


def test_a_share_passes_over_the_fullest_gpu_where_that_has_no_slot():
    cluster = taken(cluster_of(node("a", 2, max_shares=1)), "a", 0, milli=600, memory=0)
    assert place(cluster, share(100)) == "a/1"


def test_a_whole_gpu_takes_no_slot():
    assert place(cluster_of(node("a", 1, max_shares=0)), whole(1)) == "a/0"


def test_the_smallest_clique_with_enough_gpus_is_used():
    cluster = cluster_of(node("a", 6, cliques=[0, 0, 0, 0, 1, 1]))
    assert place(cluster, whole(2)) == "a/4 a/5"
    assert place(cluster, whole(3)) == "a/0 a/1 a/2"


def test_one_gpu_is_taken_from_a_broken_clique_first():
    cluster = taken(cluster_of(node("a", 4, cliques=[0, 0, 1, 1])), "a", 3)
    assert place(cluster, whole(1)) == "a/2"


def test_a_gpu_without_nvlink_goes_first():
    cluster = cluster_of(node("a", 4, cliques=[0, 0, None, None]))
    assert place(cluster, whole(1)) == "a/2"


def test_within_a_clique_one_numa_node_is_preferred():
    cluster = cluster_of(node("a", 4, cliques=[0] * 4, numa=[0, 1, 0, 1]))
    assert place(cluster, whole(2)) == "a/0 a/2"
    taken(cluster, "a", 0)
    assert place(cluster, whole(2)) == "a/1 a/3"


def test_gpus_are_scattered_only_if_no_group_has_enough():
    cluster = cluster_of(node("a", 4, cliques=[0, 0, 1, 1]))
    assert place(cluster, whole(3)) == "a/0 a/1 a/2"


def test_scattered_gpus_come_from_few_cliques_and_leave_the_largest_whole():
    cluster = cluster_of(node("a", 10, cliques=[0, 0, 0, 0, 1, 1, 1, 2, 2, 2]))
    assert place(cluster, whole(5)) == "a/4 a/5 a/6 a/7 a/8"


def test_of_equal_cliques_those_on_one_numa_node_are_used():
    cluster = cluster_of(node("a", 6, cliques=[0, 0, 1, 1, 2, 2], numa=[0, 0, 1, 1, 0, 0]))
    assert place(cluster, whole(4)) == "a/0 a/1 a/4 a/5"


def test_gpus_without_nvlink_come_from_one_numa_node():
    cluster = cluster_of(node("a", 6, numa=[0, 0, 0, 1, 1, 0]))
    assert place(cluster, whole(2)) == "a/3 a/4"
    assert place(cluster, whole(4)) == "a/0 a/1 a/2 a/5"


def test_a_share_that_opens_an_idle_gpu_leaves_the_largest_clique_whole():
    cluster = cluster_of(node("a", 6, cliques=[0, 0, 0, 1, 1, None]))
    assert place(cluster, share(300)) == "a/5"
    taken(cluster, "a", 5)
    assert place(cluster, share(300)) == "a/3"


groups = st.lists(st.tuples(st.sampled_from([None, 0, 1, 2]), st.sampled_from([0, 1])), max_size=7)


@cases
@given(groups.filter(bool), st.data())
def test_whole_gpus_are_the_best_of_all_sets(gpus, data):
    cliques, numa = [clique for clique, _ in gpus], [number for _, number in gpus]
    cluster = cluster_of(node("a", len(gpus), cliques=cliques, numa=numa))
    busy = data.draw(st.sets(st.sampled_from(range(len(gpus))), max_size=len(gpus) - 1))
    for index in busy:
        taken(cluster, "a", index)
    idle = [column for column in range(len(gpus)) if column not in busy]
    number = data.draw(st.integers(1, len(idle)))
    answer = decide(cluster, whole(number), BEST_FIT)
    chosen = tuple(int(grant.uuid.removeprefix("a/")) for grant in answer.devices)
    assert cost_of(chosen, idle, cliques, numa) == best_cost(idle, number, cliques, numa)


@cases
@given(groups.filter(bool), st.data())
def test_a_share_goes_to_the_fullest_of_all_that_fit(gpus, data):
    cluster = cluster_of(node("a", len(gpus), cliques=[clique for clique, _ in gpus]))
    left = [data.draw(st.sampled_from([1000, 1000, 700, 400, 100])) for _ in gpus]
    for index, free in enumerate(left):
        if free < 1000:
            taken(cluster, "a", index, milli=1000 - free, memory=0)
    asked = data.draw(st.sampled_from([100, 300, 600]))
    answer = decide(cluster, share(asked), BEST_FIT)
    fits = [free for free in left if free >= asked]
    if not fits:
        assert answer.reason is Reason.SHARE_DOES_NOT_FIT
    else:
        assert left[int(answer.devices[0].uuid.removeprefix("a/"))] == min(fits)


def test_slices_come_from_the_gpu_that_is_used_most():
    cluster = cluster_of(mig("a", {"1g.10gb": 3}, {"1g.10gb": 3}, {"1g.10gb": 3}))
    taken(cluster, "a", 3, memory=10_000)
    assert place(cluster, slices("1g.10gb")) == "a/4"
    taken(cluster, "a", 6, 7, memory=10_000)
    assert place(cluster, slices("1g.10gb")) == "a/8"
    assert place(cluster, slices("1g.10gb", 2)) == "a/4 a/8"


def test_a_gpu_is_opened_for_slices_only_where_the_opened_ones_have_too_few():
    cluster = cluster_of(mig("a", {"1g.10gb": 4}, {"1g.10gb": 2, "3g.40gb": 1}, {"1g.10gb": 1}))
    assert place(cluster, slices("1g.10gb")) == "a/7"
    taken(cluster, "a", 6, memory=10_000)
    assert place(cluster, slices("1g.10gb", 2)) == "a/4 a/5"
    assert place(cluster, slices("1g.10gb", 3)) == "a/4 a/5 a/7"


@cases
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_slices_open_as_few_gpus_as_can_be(cut, data):
    cluster = cluster_of(mig("a", *({"1g.10gb": number} for number in cut)))
    parents = {device.uuid: device.parent for device in cluster.node("a").devices}
    held = data.draw(st.sets(st.sampled_from(sorted(parents)), max_size=len(parents) - 1))
    for uuid in held:
        taken(cluster, "a", int(uuid.removeprefix("a/")), memory=10_000)
    open_ = {parents[uuid] for uuid in held}
    number = data.draw(st.integers(1, len(parents) - len(held)))
    chosen = decide(cluster, slices("1g.10gb", number), BEST_FIT).devices
    newly = {parents[grant.uuid] for grant in chosen} - open_
    rest = number - sum(p in open_ for uuid, p in parents.items() if uuid not in held)
    sizes = sorted((n for i, n in enumerate(cut) if f"a/P{i}" not in open_), reverse=True)
    fewest = next(k for k in range(len(sizes) + 1) if sum(sizes[:k]) >= rest)
    assert len(newly) == fewest


def test_slices_serve_neither_whole_gpus_nor_shares_and_gpus_serve_no_slices():
    sliced, uncut = mig("a", {"1g.10gb": 7}), node("b", 2)
    assert decide(cluster_of(sliced), whole(1), BEST_FIT).reason is Reason.ONLY_MIG_SLICES
    assert decide(cluster_of(sliced), share(10), BEST_FIT).reason is Reason.ONLY_MIG_SLICES
    refusal = decide(cluster_of(uncut), slices("1g.10gb"), BEST_FIT)
    assert (refusal.reason, refusal.never) == (Reason.MIG_PROFILE_MISMATCH, True)


def test_free_gpus_of_a_node_do_not_count_its_slices():
    mixed = mixed_node("a")
    assert decide(cluster_of(mixed), whole(2), BEST_FIT).reason is Reason.TOO_FEW_GPUS
    assert cluster_of(mixed).arrays.free_gpu_milli[0] == 1000


def mixed_node(name):
    """One GPU, and another that is cut into two slices."""
    return replace(node(name, 1), devices=(*node(name, 1).devices, *_cut(name)))


def _cut(name):
    return mig_devices(name, {"1g.10gb": 2}, first=1)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_every_policy_places_slices(policy):
    cluster = cluster_of(node("a"), mixed_node("b"), mig("c", {"1g.10gb": 2}))
    for number in range(4):
        answer = decide(cluster, slices("1g.10gb"), policy)
        assert isinstance(answer, Placement)
        cluster.take(f"holder {number}", answer)
    assert decide(cluster, slices("1g.10gb"), policy).message == (
        "0 of 3 nodes fit: 2 nodes: fewer than 1 free MIG slice 1g.10gb (most free on one node: 0)"
        "; 1 node: no MIG slices 1g.10gb"
    )


def test_a_sick_slice_gets_no_work():
    cluster = cluster_of(mig("a", {"1g.10gb": 2}, sick=[0]))
    assert place(cluster, slices("1g.10gb")) == "a/1"
    assert decide(cluster, slices("1g.10gb", 2), BEST_FIT).reason is Reason.GPU_FAILED


def test_a_slice_is_held_by_one_at_a_time():
    cluster = taken(cluster_of(mig("a", {"1g.10gb": 1})), "a", 0, memory=10_000)
    with pytest.raises(OverAllocated):
        taken(cluster, "a", 0, memory=1, holder="other")
    with pytest.raises(OverAllocated):
        taken(cluster_of(mig("a", {"1g.10gb": 1})), "a", 0, milli=100, memory=1)


def test_holders_of_slices_do_not_count_as_holders_of_gpus():
    cluster = taken(cluster_of(mixed_node("a")), "a", 1, memory=10_000)
    assert not cluster.arrays.holders.any()
    taken(cluster, "a", 0)
    assert cluster.arrays.holders.sum() == 1
