# SPDX-License-Identifier: Apache-2.0
import pytest
from placement_builders import A100, H100, cluster_of, device, node, share, whole

from gpupack_placement import Node, NodeName, RequestMix
from gpupack_placement.fragmentation import UNIT
from gpupack_placement.pricing.sought_kinds import RATE, SCARCE, SoughtKinds


def prices(cluster, *counts):
    """In GPUs by model."""
    view = cluster.arrays
    found = SoughtKinds(RequestMix.of(counts)).prices(view)
    names = [kind.model for kind in view.kinds.values]
    return dict(zip(names, (found / UNIT).tolist(), strict=False)) if found.any() else {}


def two_kinds(h100=4, a100=4):
    return cluster_of(node("h", h100), node("a", a100, model=A100))


def test_where_any_gpu_will_do_none_has_a_price():
    assert prices(two_kinds(), (whole(1), 1), (share(500), 1)) == {}
    assert prices(two_kinds(), (whole(0, models=(A100,)), 1), (whole(1), 1)) == {}


def test_the_price_is_the_root_of_what_is_asked_for_by_name_for_each_gpu():
    # a quarter of all GPUs asked for, and half of those there are
    found = prices(two_kinds(), (whole(1, models=(A100,)), 1), (whole(3), 1))
    assert found == {H100: 0, A100: pytest.approx(RATE * 0.5**0.5, abs=1e-5)}


def test_it_is_no_more_than_if_all_were_asked_for():
    found = prices(two_kinds(h100=8, a100=1), (whole(1, models=(A100,)), 1))
    assert found == {H100: 0, A100: pytest.approx(RATE, abs=1e-5)}


def test_requests_for_several_models_count_for_each_by_its_gpus():
    cluster = cluster_of(node("h", 4), node("a", 3, model=A100), node("t", 1, model="T4"))
    found = prices(cluster, (whole(1, models=(A100, "T4")), 1), (whole(3), 1))
    each = pytest.approx(RATE * 0.5**0.5, abs=1e-5)
    assert found == {H100: 0, A100: each, "T4": each}


def test_memory_that_only_large_gpus_have_counts_as_a_name():
    cluster = cluster_of(node("h", 4), node("a", 4, model=A100, gpu_memory=40_000))
    assert prices(cluster, (whole(1, min_memory=50_000), 1))[H100] > 0
    assert prices(cluster, (share(500, 50_000), 1))[H100] > 0
    assert prices(cluster, (share(500, 30_000), 1)) == {}


def test_what_no_gpu_would_do_for_asks_for_none():
    assert prices(two_kinds(), (whole(1, models=("T4",)), 1), (whole(1), 1)) == {}


def test_gpus_of_a_mixed_node_have_no_price_and_do_not_count():
    mixed = Node(NodeName("m"), (device("m", 0), device("m", 1, model=A100)))
    cluster = cluster_of(node("h", 4), node("a", 4, model=A100), mixed)
    mix = RequestMix.of([(whole(1, models=(A100,)), 1), (whole(3), 1)])
    found = SoughtKinds(mix).prices(cluster.arrays)
    assert found.tolist() == [0, round(RATE * 0.5**0.5 * UNIT), 0, 0]


def test_nodes_that_join_change_the_price():
    sought = SoughtKinds(RequestMix.of([(whole(1, models=(A100,)), 1), (whole(3), 1)]))
    few, many = (sought.prices(two_kinds(a100=number).arrays)[1] for number in (4, 12))
    assert few > many > 0


@pytest.mark.parametrize(("others", "scarcity"), [(3, 0), (2, 0), (1.5, 0.2), (0.5, 1)])
def test_while_nothing_leaves_the_price_begins_shortly_before_they_run_out(others, scarcity):
    # of 8 GPUs asked for 8 / (1 + others) by name, of 4 there are
    mix = RequestMix.of([(whole(1, models=(A100,)), 1), (whole(1), others)])
    found = SoughtKinds(mix).while_filling(two_kinds().arrays)
    assert found[:2].tolist() == [0, pytest.approx(SCARCE * scarcity * UNIT, abs=1)]
