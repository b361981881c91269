# SPDX-License-Identifier: Apache-2.0
import pytest
from placement_builders import A100, H100, cluster_of, mig, node

from gpupack_placement import DeviceUuid, Grant, MiB, MilliGpu, NodeName, Placement
from gpupack_queue import ANY, ModelKeys


def on(name, index=0, *, milli=1000, memory=80_000):
    grant = Grant(DeviceUuid(f"{name}/{index}"), MilliGpu(milli), MiB(memory))
    return Placement(NodeName(name), (grant,))


@pytest.mark.parametrize(
    ("milli", "memory", "counts"),
    [(1000, 80_000, 1000), (300, 8_000, 300), (200, 72_000, 900), (300, 0, 300), (100, 1, 100)],
)
def test_a_share_counts_by_percent_or_memory_whichever_is_dearer(milli, memory, counts):
    charge = ModelKeys().charge(cluster_of(node("n1")), [on("n1", milli=milli, memory=memory)])
    assert charge == {ANY: counts}


def test_a_gpu_counts_under_the_longest_name_that_matches_it():
    keys = ModelKeys(["H100", "NVIDIA H100", "A100"])
    assert [keys.of(model) for model in (H100, A100, "T4")] == ["NVIDIA H100", "A100", ANY]


def test_a_mig_slice_counts_by_its_part_of_its_gpu():
    """Three of equal memory were cut from one GPU."""
    cluster = cluster_of(mig("n1", {"1g.10gb": 3}))
    assert ModelKeys().charge(cluster, [on("n1", 0, memory=10_000)]) == {ANY: 334}
    assert ModelKeys().capacity(cluster) == {ANY: 1000}


def test_gpus_held_on_a_removed_node_still_count():
    assert ModelKeys(["H100"]).charge(cluster_of(), [on("gone", milli=400)]) == {ANY: 400}


def test_the_capacity_is_of_all_gpus_whatever_their_health():
    cluster = cluster_of(node("n1", 4, sick=(0,)), node("n2", 2, model="T4"))
    assert ModelKeys(["H100"]).capacity(cluster) == {"H100": 4000, ANY: 2000}


def test_a_request_may_count_under_the_keys_of_the_models_that_it_may_use():
    cluster, keys = cluster_of(node("n1"), node("n2", model=A100)), ModelKeys(["H100"])
    assert keys.allowed(cluster, ()) == (ANY, "H100")
    assert keys.allowed(cluster, ("a100",)) == (ANY,)
