# SPDX-License-Identifier: Apache-2.0
import pytest
from core_builders import A100, BEST_FIT, cluster_of, node, place, share, taken, whole

from gpupack_core import Interconnect, NodeSelector, Reason, Taint, decide


def test_causes_are_counted_the_most_frequent_first():
    cluster = cluster_of(node("a"), node("b", model=A100, gpu_memory=40_000), node("c"))
    taken(taken(cluster, "a", *range(6)), "c", *range(7))
    assert place(cluster, whole(4, models=("H100",))) == (
        "0 of 3 nodes fit: 2 nodes: fewer than 4 free GPUs (most free on one node: 2); "
        "1 node: model is not H100"
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
        (Reason.OTHER_RESOURCE, whole(1, models=("H10",)), node("a", resource="example.org/gpu")),
        (Reason.OTHER_RESOURCE, share(10, resource="example.org/gpu"), node("a")),
        (Reason.MODEL_MISMATCH, whole(1, models=("H10",)), node("a")),
        (Reason.GPU_MEMORY_TOO_SMALL, whole(1, min_memory=80_001), node("a")),
        (Reason.GPU_MEMORY_TOO_SMALL, share(100, 80_001), node("a")),
        (Reason.TOO_FEW_GPUS, whole(9), node("a")),
        (Reason.NO_NVLINK_CLIQUE, whole(2, interconnect=Interconnect.NVLINK), node("a")),
        (Reason.GPU_FAILED, whole(8), node("a", sick=[3])),
        (Reason.CPU_EXHAUSTED, whole(1, cpu=64_001), node("a")),
        (Reason.MEMORY_EXHAUSTED, whole(1, memory=512_001), node("a")),
    ],
)
def test_each_node_has_the_first_reason_that_fails(reason, request_, only):
    refusal = decide(cluster_of(only), request_, BEST_FIT)
    assert [(count.reason, count.nodes) for count in refusal.counts] == [(reason, 1)]


def test_a_share_that_does_not_fit_names_the_largest_gap():
    cluster = taken(cluster_of(node("a", 1)), "a", 0, milli=700, memory=0)
    refusal = decide(cluster, share(400, 4096), BEST_FIT)
    assert (refusal.reason, refusal.message) == (
        Reason.SHARE_DOES_NOT_FIT,
        "0 of 1 node fits: 1 node: no GPU has 40% and 4096 MiB free (most free on one GPU: 30%)",
    )


def test_a_share_that_finds_no_slot_is_told_so():
    full = node("a", 1, max_shares=2)
    cluster = cluster_of(full, node("b", 1, max_shares=2))
    for name in ("a", "b"):
        for holder in ("x", "y"):
            taken(cluster, name, 0, milli=10, memory=1, holder=f"{name}{holder}")
    refusal = decide(cluster, share(40, 4096), BEST_FIT)
    assert refusal.message == (
        "0 of 2 nodes fit: 2 nodes: GPUs with 4% and 4096 MiB free hold as many shares as they can"
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
def test_waiting_is_told_apart_from_never(never, request_):
    sick = node("a", 2, sick=[0], taints=(Taint("node.kubernetes.io/not-ready"),), ready=False)
    assert decide(cluster_of(sick), request_, BEST_FIT).never is never


def test_a_lasting_taint_is_no_reason_to_wait():
    cluster = cluster_of(node("a", taints=(Taint("team", "other"),)))
    assert decide(cluster, whole(1), BEST_FIT).never


def test_an_empty_inventory_is_worth_waiting_for():
    refusal = decide(cluster_of(), whole(1), BEST_FIT)
    assert (refusal.reason, refusal.never) == (Reason.NO_NODES, False)
