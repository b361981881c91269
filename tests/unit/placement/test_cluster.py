# SPDX-License-Identifier: Apache-2.0
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import fields, replace
from random import Random

import pytest
from placement_builders import (
    BEST_FIT,
    cluster_of,
    mig,
    node,
    place,
    share,
    slices,
    taken,
    whole,
    with_health,
)

from gpupack_placement import (
    POLICIES,
    AlreadyHeld,
    Arrays,
    DemandForecast,
    Device,
    DuplicateDevice,
    Grant,
    Health,
    NotHeld,
    OverAllocated,
    Placement,
    RequestMix,
    Taint,
    UnknownDevice,
    UnknownNode,
    decide,
)
from gpupack_placement.feasibility import worker_slots

ONE = Placement("a", (Grant("a/0", 1000, 80_000),), 1000, 100)


def free(cluster, name="a"):
    return [(device.milli, device.memory) for device in cluster.free_devices(name)]


def test_taking_and_giving_back_is_the_identity():
    cluster = cluster_of(node("a", 2))
    before = free(cluster)
    cluster.take("x", ONE)
    assert free(cluster) == [(0, 0), (1000, 80_000)]
    assert cluster.give_back("x") == ONE
    assert free(cluster) == before


def test_what_is_free_after_each_change_is_what_a_whole_row_derives():
    cluster = cluster_of(node("a", 4), mig("b", {"1g.10gb": 3}), node("c", 2))
    cluster.set_node(with_health(cluster.node("c"), 1, Health.FAILED))
    holders, random = [], Random(1)
    for number in range(300):
        if holders and random.random() < 0.45:
            cluster.give_back(holders.pop(random.randrange(len(holders))))
        else:
            asked = random.choice(
                [whole(1, cpu=100), whole(2), share(300, 10_000), slices("1g.10gb")]
            )
            if (placement := decide(cluster, asked, BEST_FIT)) and hasattr(placement, "node"):
                holders.append(f"holder-{number}")
                cluster.take(holders[-1], placement)
        derived = cluster.arrays.copy()
        derived.refresh(slice(0, len(derived.version)))
        for field in fields(Arrays):
            if field.name not in {"version", "kinds", "extended"}:
                ours, theirs = (getattr(a, field.name) for a in (cluster.arrays, derived))
                assert (ours == theirs).all(), field.name


def test_a_holder_holds_once_and_gives_back_once():
    cluster = cluster_of(node("a", 2))
    cluster.take("x", ONE)
    with pytest.raises(AlreadyHeld, match="x holds devices on a"):
        cluster.take("x", replace(ONE, devices=()))
    cluster.give_back("x")
    with pytest.raises(NotHeld):
        cluster.give_back("x")


@pytest.mark.parametrize(
    "placement",
    [
        ONE,
        Placement("a", (Grant("a/0", 1, 0),)),
        Placement("a", (Grant("a/1", 501, 0),)),
        Placement("a", (Grant("a/1", 500, 79_001),)),
        Placement("a", cpu=63_001),
        Placement("a", memory=511_901),
    ],
)
def test_more_than_there_is_cannot_be_taken(placement):
    cluster = cluster_of(node("a", 2))
    cluster.take("x", ONE)
    taken(cluster, "a", 1, milli=500, memory=1000)
    before = free(cluster)
    with pytest.raises(OverAllocated):
        cluster.take("y", placement)
    assert (free(cluster), cluster.placement_of("y")) == (before, None)


def test_what_is_not_in_the_inventory_cannot_be_taken():
    cluster = cluster_of(node("a", 1))
    with pytest.raises(UnknownNode):
        cluster.take("x", Placement("b"))
    with pytest.raises(UnknownDevice, match="a/7"):
        cluster.take("x", Placement("a", (Grant("a/7", 1000, 1),)))


def test_a_device_that_vanishes_while_held_is_still_held_when_it_is_back():
    cluster = cluster_of(node("a", 2))
    cluster.take("x", ONE)
    cluster.set_node(replace(node("a", 2), devices=node("a", 2).devices[1:]))
    assert place(cluster, whole(1)) == "a/1"
    assert cluster.holders_of(node="a", uuid="a/0") == ("x",)
    cluster.set_node(node("a", 2))
    assert free(cluster) == [(0, 0), (1000, 80_000)]


def test_a_node_that_leaves_and_comes_back_has_its_holders():
    cluster = cluster_of(node("a", 1), node("b", 1))
    cluster.take("x", ONE)
    cluster.remove_node("a")
    assert ("a" in cluster, cluster.holders_on("a")) == (False, ("x",))
    cluster.set_node(node("a", 1))
    assert free(cluster) == [(0, 0)]


def test_what_the_api_says_is_adopted_before_its_node_is_known():
    cluster = cluster_of()
    cluster.adopt("x", ONE)
    cluster.adopt("y", ONE)
    cluster.set_node(node("a", 2))
    assert free(cluster) == [(0, 0), (1000, 80_000)]
    cluster.give_back("x")
    assert free(cluster)[0] == (0, 0)
    cluster.give_back("y")
    assert free(cluster)[0] == (1000, 80_000)


def test_a_device_is_on_one_node_at_a_time():
    cluster = cluster_of(node("a", 1))
    twin = replace(node("b", 0), devices=(Device("a/0", 0, "H100", 1),))
    with pytest.raises(DuplicateDevice, match="also on node a"):
        cluster.set_node(twin)
    cluster.remove_node("a")
    cluster.set_node(twin)
    assert (len(cluster), "b" in cluster) == (1, True)


def test_a_device_that_left_one_node_may_appear_on_another():
    cluster = cluster_of(node("a", 1))
    cluster.set_node(node("a", 0))
    cluster.set_node(replace(node("b", 0), devices=node("a", 1).devices))
    assert place(cluster, whole(1)) == "a/0"
    assert decide(cluster, whole(1), BEST_FIT).node == "b"


def test_nodes_and_devices_may_grow_beyond_the_first_size():
    cluster = cluster_of(node("a", 1))
    for number in range(40):
        cluster.set_node(node(f"n{number}", number % 16))
    assert len(cluster) == 41
    assert decide(cluster, whole(15), BEST_FIT).node == "n15"


def test_a_removed_nodes_place_is_used_again_without_leftovers():
    cluster = taken(cluster_of(node("a", 8, cordoned=True)), "a", 0)
    cluster.remove_node("a")
    cluster.set_node(node("b", 2))
    assert free(cluster, "b") == [(1000, 80_000)] * 2
    assert [n.name for n in cluster.nodes()] == ["b"]
    with pytest.raises(UnknownNode):
        cluster.remove_node("a")


def test_a_fork_and_its_origin_do_not_touch_each_other():
    cluster = cluster_of(node("a", 2))
    fork = cluster.fork()
    fork.take("x", ONE)
    fork.set_node(node("b", 4))
    assert (len(cluster), cluster.placement_of("x"), free(cluster)[0][0]) == (1, None, 1000)
    cluster.remove_node("a")
    assert fork.give_back("x") == ONE
    assert place(fork, whole(4)).startswith("b/")


def test_devices_are_given_out_by_index_whatever_their_order():
    shuffled = replace(node("a", 3), devices=node("a", 3).devices[::-1])
    assert place(cluster_of(shuffled), share(10)) == "a/0"


def test_a_share_beyond_the_slots_of_a_gpu_is_not_taken():
    cluster = taken(cluster_of(node("a", 1, max_shares=1)), "a", 0, milli=10, memory=1)
    with pytest.raises(OverAllocated, match="no slot for a share"):
        taken(cluster, "a", 0, milli=20, memory=1)


def test_an_emptied_cluster_is_read_only_and_can_be_planned_on_by_an_overlay():
    cluster = taken(cluster_of(node("a", 2, sick=[1], cordoned=True)), "a", 0)
    ideal = cluster.emptied()
    assert free(ideal) == [(1000, 80_000)] * 2
    with pytest.raises(ValueError, match="read-only"):
        ideal.take("x", ONE)
    ideal.overlay().take("x", ONE)
    assert free(cluster) == [(0, 0)] * 2


def test_what_is_planned_on_an_overlay_leaves_the_cluster_as_it_was():
    cluster = taken(cluster_of(node("a", 2), node("b", 1)), "b", 0, milli=300, memory=9)
    before = {f.name: copy(getattr(cluster.arrays, f.name)) for f in fields(Arrays)}
    overlay = cluster.overlay()
    overlay.take("x", ONE)
    overlay.take("y", Placement("b", (Grant("b/0", 500, 10),), 10, 10))
    overlay.give_back("x")
    del before["kinds"], before["extended"]
    for name, numbers in before.items():
        assert (getattr(cluster.arrays, name) == numbers).all(), name


@pytest.fixture
def eager_switches():
    """Threads take turns as often as the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("policy", ["first-fit", "fgd", "bid-price"])
@pytest.mark.usefixtures("eager_switches")
def test_decisions_on_a_fork_in_a_thread_and_on_its_changing_origin_stay_right(policy):
    cluster = cluster_of(*(node(f"n{number}", 2) for number in range(64)))
    asked, deciding = (
        share(500),
        POLICIES[policy].informed(DemandForecast(RequestMix.of([(share(500), 1)]))),
    )
    fork, rows = cluster.fork(), range(63)
    for row in rows:
        taken(fork, f"n{row}", 0, 1)

    def on_the_fork():
        return {decide(fork, asked, deciding).node for _ in range(500)}

    def on_the_origin():
        answers = set()
        for turn in range(250):
            answers.add(decide(cluster, asked, deciding).node)
            taken(cluster, f"n{turn % 63}", 0, 1, holder="x")
            answers.add(decide(cluster, asked, deciding).node)
            cluster.give_back("x")
        return answers

    with ThreadPoolExecutor() as pool:
        origin = pool.submit(on_the_origin)
        assert on_the_fork() == {"n63"}
        assert origin.result() == {"n0", "n1"}


def test_a_fork_that_meets_new_models_and_taints_leaves_the_tables_of_its_origin_alone():
    cluster = cluster_of(node("a"))
    cluster.fork().set_node(node("b", model="Other", taints=(Taint("team", "x"),), resource="r"))
    tables = (cluster.model_names, cluster.taint_sets, cluster.resources, cluster.arrays.kinds)
    assert [len(table.values) for table in tables] == [1, 1, 1, 1]


def test_a_fork_keeps_the_emptied_cluster_until_its_nodes_change():
    cluster = cluster_of(node("a", 2))
    emptied = cluster.emptied()
    fork = cluster.fork()
    assert fork.emptied().arrays is emptied.arrays
    assert fork.emptied().room is not emptied.room
    assert fork.inventory is cluster.inventory is cluster.overlay().inventory
    fork.set_node(node("b", 4))
    assert len(fork.emptied()) == 2
    assert int(worker_slots(fork.emptied(), whole(3)).sum()) == 1
    assert cluster.emptied() is emptied
    assert fork.inventory is not cluster.inventory
