# SPDX-License-Identifier: Apache-2.0
import pytest
from placement_builders import (
    A100,
    BEST_FIT,
    cluster_of,
    mig,
    node,
    place,
    share,
    slices,
    taken,
    whole,
)

from gpupack_placement import Interconnect, NodeSelector, Reason, Taint, decide
from gpupack_placement.miss import NearestMiss, Resource


def test_causes_are_counted_the_most_frequent_first():
    cluster = cluster_of(node("a"), node("b", model=A100, gpu_memory=40_000), node("c"))
    taken(taken(cluster, "a", *range(6)), "c", *range(7))
    assert place(cluster, whole(4, models=("H100",))) == (
        "0 of 3 nodes fit: 2 nodes: fewer than 4 free GPUs (most free on one node: 2); "
        "1 node: model is not H100 (nearest: NVIDIA-A100-SXM4-40GB (40000 MiB)); "
        "1 node would fit with 2 GPUs less"
    )


def test_the_message_does_not_depend_on_the_order_of_nodes():
    nodes = [node("a", 0), node("b", ready=False), node("c", 2), node("d", cordoned=True)]
    forth, back = cluster_of(*nodes), cluster_of(*reversed(nodes))
    assert place(forth, whole(4)) == place(back, whole(4))


@pytest.mark.parametrize(
    ("reason", "request_", "only"),
    [
        (Reason.NODE_NOT_READY, whole(1), node("a", ready=False, cordoned=True)),
        (Reason.NODE_CORDONED, whole(1), node("a", cordoned=True)),
        (Reason.TAINT_NOT_TOLERATED, whole(1), node("a", taints=(Taint("k"),))),
        (Reason.SELECTOR_MISMATCH, whole(1, selector=NodeSelector((("k", "v"),))), node("a")),
        (Reason.NO_GPUS, whole(1, models=("H100",)), node("a", 0)),
        (
            Reason.RESOURCE_NAME_MISMATCH,
            whole(1, models=("H10",)),
            node("a", resource="example.org/gpu"),
        ),
        (Reason.RESOURCE_NAME_MISMATCH, share(10, resource="example.org/gpu"), node("a")),
        (Reason.MODEL_MISMATCH, whole(1, models=("H10",)), node("a")),
        (Reason.GPU_MEMORY_TOO_SMALL, whole(1, min_memory=80_001), node("a")),
        (Reason.GPU_MEMORY_TOO_SMALL, share(100, 80_001), node("a")),
        (Reason.TOO_FEW_GPUS, whole(9), node("a")),
        (Reason.NO_NVLINK_CLIQUE, whole(2, interconnect=Interconnect.NVLINK), node("a")),
        (Reason.GPU_FAILED, whole(8), node("a", sick=[3])),
        (Reason.GPU_FAILED, whole(8), node("a", sick=[3], maintained=[4])),
        (Reason.GPU_IN_MAINTENANCE, whole(8), node("a", maintained=[3])),
        (Reason.GPU_IN_MAINTENANCE, whole(7), node("a", sick=[3], maintained=[4])),
        (Reason.GPU_IN_MAINTENANCE, share(10), node("a", 2, maintained=[0, 1])),
        (Reason.ONLY_MIG_SLICES, whole(1), mig("a", {"1g.10gb": 2})),
        (Reason.ONLY_MIG_SLICES, share(10), mig("a", {"1g.10gb": 2})),
        (Reason.MIG_PROFILE_MISMATCH, slices("2g.20gb"), mig("a", {"1g.10gb": 2})),
        (Reason.TOO_FEW_GPUS, slices("1g.10gb", 3), mig("a", {"1g.10gb": 2})),
        (Reason.GPU_FAILED, slices("1g.10gb", 2), mig("a", {"1g.10gb": 2}, sick=[1])),
        (Reason.INSUFFICIENT_CPU, whole(1, cpu=64_001), node("a")),
        (Reason.INSUFFICIENT_MEMORY, whole(1, memory=512_001), node("a")),
        (Reason.NO_SUCH_RESOURCE, whole(1, extended=(("nic", 1),)), node("a")),
        (Reason.NO_SUCH_RESOURCE, whole(0, extended=(("nic", 1),)), node("a", 0)),
        (Reason.TOO_MANY_PODS, whole(1), node("a", pods=0)),
    ],
)
def test_each_node_has_the_first_reason_that_fails(reason, request_, only):
    refusal = decide(cluster_of(only), request_, BEST_FIT)
    assert [(count.reason, count.nodes) for count in refusal.counts] == [(reason, 1)]


def test_the_reason_counts_the_gpus_outside_maintenance():
    nodes = [node("a", maintained=range(8)), node("b", maintained=[1])]
    refusal = decide(cluster_of(*nodes), whole(8), BEST_FIT)
    assert refusal.message == (
        "0 of 2 nodes fit: 2 nodes: too few GPUs that are not in maintenance "
        "(most on one node: 7); 1 node would fit with 1 GPU less"
    )
    assert not refusal.never


def test_a_share_that_does_not_fit_names_the_largest_gap():
    cluster = taken(cluster_of(node("a", 1)), "a", 0, milli=700, memory=0)
    refusal = decide(cluster, share(400, 4096), BEST_FIT)
    assert refusal.reason is Reason.SHARE_DOES_NOT_FIT
    assert refusal.message == (
        "0 of 1 node fits: 1 node: no GPU has 40% and 4 GiB free (most free on one GPU: 30%); "
        "1 node would fit with 10 points less"
    )


def test_a_share_whose_percent_is_free_is_limited_by_memory():
    cluster = cluster_of(node("a", 1))
    memory = cluster.nodes()[0].devices[0].memory
    for number in range(3):
        taken(cluster, "a", 0, milli=250, memory=memory // 4 + 1, holder=f"share {number}")
    refusal = decide(cluster, share(250, memory // 4 + 1), BEST_FIT)
    left = memory - 3 * (memory // 4 + 1)
    limit = f"(memory is the limit: the most on a GPU with 25% free is {left} MiB)"
    assert limit in refusal.message


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            whole(1, min_memory=120 * 1024),
            "1 node: GPU memory is below 120 GiB (largest: 80000 MiB); ",
        ),
        (whole(1, min_memory=120_000), "1 node: GPU memory is below 120000 MiB (largest: "),
        (
            whole(1, memory=600 * 1024),
            "less than 600 GiB of memory free (most free on one node: 500 GiB)",
        ),
    ],
)
def test_memory_is_written_in_the_unit_in_which_it_was_requested(request_, said):
    assert said in decide(cluster_of(node("a", 1)), request_, BEST_FIT).message


def test_the_reason_says_that_a_share_finds_no_slot():
    full = node("a", 1, max_shares=2)
    cluster = cluster_of(full, node("b", 1, max_shares=2))
    for name in ("a", "b"):
        for holder in ("x", "y"):
            taken(cluster, name, 0, milli=10, memory=1, holder=f"{name}{holder}")
    refusal = decide(cluster, share(40, 4096), BEST_FIT)
    assert refusal.message == (
        "0 of 2 nodes fit: 2 nodes: GPUs with 4% and 4 GiB free have their maximum number of shares"
    )
    assert refusal.never is False
    assert cluster.give_back("ax")
    assert place(cluster, share(40, 4096)) == "a/0"


def test_percent_that_is_missing_is_named_before_a_slot_that_is_missing():
    cluster = cluster_of(node("a", 2, max_shares=1))
    taken(cluster, "a", 0, milli=700, memory=0)
    taken(cluster, "a", 1, milli=600, memory=0)
    assert decide(cluster, share(500), BEST_FIT).reason is Reason.SHARE_DOES_NOT_FIT
    assert decide(cluster, share(400), BEST_FIT).reason is Reason.TOO_MANY_SHARES


@pytest.mark.parametrize(
    ("never", "request_"),
    [(False, whole(2)), (True, whole(3)), (False, share(500)), (True, whole(1, models=("T4",)))],
)
def test_waiting_is_distinguished_from_never(never, request_):
    sick = node("a", 2, sick=[0], taints=(Taint("node.kubernetes.io/not-ready"),), ready=False)
    assert decide(cluster_of(sick), request_, BEST_FIT).never is never


def test_a_lasting_taint_is_no_reason_to_wait():
    cluster = cluster_of(node("a", taints=(Taint("team", "other"),)))
    assert decide(cluster, whole(1), BEST_FIT).never


def test_an_empty_inventory_is_worth_waiting_for():
    refusal = decide(cluster_of(), whole(1), BEST_FIT)
    assert (refusal.reason, refusal.never) == (Reason.NO_NODES, False)


GIB = 1024
NEAREST = [
    (whole(4), "1 node would fit with 1 GPU less"),
    (whole(2, min_memory=90 * GIB), "2 nodes would fit with 10 GiB less GPU memory"),
    (whole(3, min_memory=82_000), "1 node would fit with 80 MiB less GPU memory"),
    (share(450), "2 nodes would fit with 5 points less"),
    (share(405), "2 nodes would fit with 0.5 points less"),
    (share(100, 90 * GIB), "2 nodes would fit with 10 GiB less GPU memory"),
    (whole(1, cpu=66_000), "2 nodes would fit with 2 cores less"),
    (whole(1, cpu=64_500), "2 nodes would fit with 500 milli-CPU less"),
    (whole(1, memory=500 * GIB + 1), "2 nodes would fit with 1 MiB less memory"),
    (whole(0, memory=501 * GIB), "2 nodes would fit with 1 GiB less memory"),
    (whole(4, interconnect=Interconnect.NVLINK), "1 node would fit with 2 GPUs less"),
]


def fleet(request):
    """For shares two full nodes with 40% of a GPU left, otherwise three and two GPUs are free."""
    kinds = {"gpu_memory": 80 * GIB, "memory": 500 * GIB}
    a, b = node("a", 4, cliques=[0, 0, 1, 1], **kinds), node("b", 3, **kinds)
    cluster = cluster_of(a, b, node("c", 2, ready=False))
    if request.share and not request.share.memory:
        for name, count in (("a", 4), ("b", 3)):
            taken(cluster, name, *range(count - 1))
            taken(cluster, name, count - 1, milli=600, memory=0)
        return cluster
    return taken(taken(cluster, "a", 3), "b", 2)


@pytest.mark.parametrize(("request_", "text"), NEAREST)
def test_the_nearest_miss_is_named(request_, text):
    cluster = fleet(request_)
    refusal = decide(cluster, request_, BEST_FIT)
    assert refusal.nearest.text == text
    assert f"; {text}" in refusal.message


def test_slices_are_missed_by_number():
    cluster = cluster_of(mig("a", {"1g.10gb": 2}), mig("b", {"1g.10gb": 2}), node("c"))
    assert decide(cluster, slices("1g.10gb", 3), BEST_FIT).nearest.text == (
        "2 nodes would fit with 1 MIG slice less"
    )


def test_the_smaller_part_of_what_was_asked_is_the_nearer_miss():
    cluster = cluster_of(node("a", 4, cpu=64_000), node("b", 8, cpu=60_000))
    assert decide(cluster, whole(8, cpu=64_000), BEST_FIT).nearest == NearestMiss(
        Resource.CPU, 4000, 1
    )
    assert decide(cluster, whole(5, cpu=64_000), BEST_FIT).nearest == NearestMiss(
        Resource.CPU, 4000, 1
    )
    assert decide(cluster, whole(5, cpu=160_000), BEST_FIT).nearest.resource is Resource.CPU


def test_nothing_is_named_where_less_of_one_resource_would_not_help():
    cluster = cluster_of(node("a", cordoned=True), node("b", 1, cpu=500))
    assert decide(cluster, whole(2, cpu=1000), BEST_FIT).nearest is None
    assert decide(cluster, whole(1, models=("T4",)), BEST_FIT).nearest is None


def test_only_candidates_can_be_missed():
    cluster = cluster_of(node("a", 2), node("b", 3))
    assert decide(cluster, whole(4), BEST_FIT, candidates=["a"]).nearest.less == 2


def test_a_request_by_the_name_of_a_plugin_that_has_no_node_is_answered_with_what_to_write():
    asked = whole(2, resource="nvidia.com/gpu")
    message = decide(cluster_of(node("a")), asked, BEST_FIT).message
    assert "(request gpupack.dev/gpu: 2 in place of nvidia.com/gpu: 2)" in message


def test_a_refusal_names_the_resources_by_which_gpus_are_asked_for():
    there = cluster_of(*(node(name, resource=f"{name}.org/gpu") for name in ("b", "a")))
    text = "2 nodes: its GPUs are requested by another resource name: a.org/gpu or b.org/gpu"
    assert text in decide(there, whole(1), BEST_FIT).message
