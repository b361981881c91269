# SPDX-License-Identifier: Apache-2.0
import json
from copy import deepcopy

import pytest
from hypothesis import given
from placement_builders import cluster_of, mig, node, place, share, taken, whole
from placement_strategies import books, cases, clusters

from gpupack_placement import InvalidSnapshot, Placement, Taint
from gpupack_placement.snapshot import SCHEMA, dump, load

WRITTEN_BY_HAND = {
    "schema": 1,
    "nodes": [
        {"name": "a", "devices": [{"uuid": "g0", "model": "H100", "memoryMiB": 80_000}]},
        {
            "name": "b",
            "cpuMilli": 4000,
            "memoryMiB": 16_000,
            "taints": [{"key": "team"}],
            "labels": {"zone": "1"},
            "devices": [
                {"uuid": "g1", "model": "H100", "memoryMiB": 80_000},
                {"uuid": "g2", "model": "H100", "memoryMiB": 80_000},
            ],
        },
    ],
    "holders": [
        {"holder": "x", "node": "a", "devices": [{"uuid": "g0", "milli": 300, "memoryMiB": 9}]},
        {"holder": "y", "node": "b", "cpuMilli": 1000},
    ],
}


@cases
@given(clusters())
def test_load_and_dump_are_inverse(cluster):
    document = json.loads(json.dumps(dump(cluster)))
    loaded = load(document)
    assert dump(loaded) == dump(cluster) == document
    assert loaded.nodes() == cluster.nodes()
    assert loaded.held() == cluster.held()
    assert books(loaded) == books(cluster)


def test_a_cluster_goes_on_after_load_as_it_would_have():
    original = taken(cluster_of(node("b", 2), node("a", 2), tie_seed=3), "a", 0, milli=300)
    loaded = load(dump(original))
    for request in (share(400), whole(2), whole(1)):
        assert place(loaded, request) == place(original, request)


def test_what_has_a_default_may_be_left_out():
    cluster = load(WRITTEN_BY_HAND)
    b = cluster.node("b")
    assert [device.index for device in b.devices] == [0, 1]
    assert (b.taints, b.ready, b.cordoned) == ((Taint("team"),), True, False)
    assert cluster.held()["y"] == Placement("b", (), 1000)
    assert [free.milli for free in cluster.free_devices("a")] == [700]


def test_every_state_of_a_node_is_kept():
    odd = node("a", 1, ready=False, cordoned=True, resource="nvidia.com/gpu", labels={"k": ""})
    sick = node("b", 2, sick=[1], cliques=[None, 0], numa=[1, None], max_shares=3)
    for each in (odd, sick, mig("c", {"1g.10gb": 2}, {"3g.40gb": 1})):
        assert load(dump(cluster_of(each))).nodes() == (each,)


def test_a_resource_of_a_node_is_that_of_its_devices_that_say_nothing_else():
    document = {
        "schema": 1,
        "nodes": [
            {
                "name": "a",
                "resource": "nvidia.com/gpu",
                "devices": [
                    {"uuid": "g0", "model": "T4", "memoryMiB": 1},
                    {"uuid": "g1", "model": "T4", "memoryMiB": 1, "resource": ""},
                ],
            }
        ],
    }
    loaded = load(document)
    assert [each.resource for each in loaded.node("a").devices] == ["nvidia.com/gpu", ""]
    assert load(dump(loaded)).nodes() == loaded.nodes()


@pytest.mark.parametrize("gone", [Placement("away"), Placement("a", cpu=99_000_000)])
def test_facts_that_do_not_fit_are_kept_where_asked_for(gone):
    cluster = cluster_of(node("a"))
    cluster.adopt("x", gone)
    assert load(dump(cluster), strict=False).held() == {"x": gone}
    with pytest.raises(InvalidSnapshot, match=r"^holders\[0\]: "):
        load(dump(cluster))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", 2, f"schema: 2 is not the version that can be read, {SCHEMA}"),
        ("schema", "1", "schema: '1' is not a whole number"),
        ("tieSeed", 0.5, "tieSeed: 0.5 is not a whole number"),
        ("nodes", {}, "nodes: {} is not a list"),
        ("nodes", None, "nodes: None is not a list"),
        ("nodez", [], "nodez: there is no such field; use schema, tieSeed, nodes, holders"),
        ("nodes 1", "b", "nodes[1]: 'b' is not an object"),
        ("nodes 1 name", "", "nodes[1].name: '' is empty"),
        ("nodes 1 name", "a", "nodes[1].name: 'a' is the name of a node above, too"),
        ("nodes 1 cpuMilli", -1, "nodes[1].cpuMilli: -1 is negative"),
        ("nodes 1 cpuMilli", "4", "nodes[1].cpuMilli: '4' is not a whole number"),
        ("nodes 1 memoryMiB", 1.5, "nodes[1].memoryMiB: 1.5 is not a whole number"),
        ("nodes 1 memoryMiB", 1 << 60, f"nodes[1].memoryMiB: {1 << 60} is above {1 << 50}"),
        ("nodes 1 ready", 1, "nodes[1].ready: 1 is neither true nor false"),
        ("nodes 1 labels", [], "nodes[1].labels: [] is not an object"),
        ("nodes 1 labels zone", 1, "nodes[1].labels.zone: 1 is not a text"),
        ("nodes 1 taints 0 key", "", "nodes[1].taints[0].key: '' is empty"),
        (
            "nodes 1 taints 0 effect",
            "No",
            "nodes[1].taints[0].effect: 'No' is none of NoSchedule, PreferNoSchedule, NoExecute",
        ),
        ("nodes 1 devices 0 memoryMiB", -1, "nodes[1].devices[0].memoryMiB: -1 is not positive"),
        ("nodes 1 devices 0 memoryMiB", True, "nodes[1].devices[0].memoryMiB: True is not a whole"),
        ("nodes 1 devices 0 model", None, "nodes[1].devices[0].model: None is not a text"),
        ("nodes 1 devices 0 uuid", "g2", "nodes[1]: node b: two devices have the same uuid"),
        ("nodes 1 devices 0 uuid", "g0", "nodes[1]: g0 of b is also on node a"),
        ("nodes 1 devices 0 index", 1, "nodes[1]: node b: two devices have the same index"),
        ("nodes 1 devices 0 profile", "1g", "nodes[1]: device g1: a MIG slice has a profile and"),
        (
            "nodes 1 devices 0 health",
            "healthy",
            "nodes[1].devices[0].health: 'healthy' is none of Healthy, Degraded, Cordoned",
        ),
        ("holders 0 holder", 7, "holders[0].holder: 7 is not a text"),
        ("holders 1 holder", "x", "holders[1]: x holds devices on a already"),
        ("holders 0 node", "z", "holders[0]: node z is not in the cluster"),
        ("holders 0 devices 0 uuid", "g1", "holders[0]: node a has no device g1"),
        ("holders 0 devices 0 milli", 1001, "holders[0].devices[0].milli: 1001 is above 1000"),
        ("holders 0 devices 0 memoryMiB", 80_001, "holders[0]: g0 on a has no 300 milli-GPU and"),
        ("holders 0 devices 0 mib", 1, "holders[0].devices[0].mib: there is no such field; use"),
        ("holders 1 cpuMilli", 4001, "holders[1]: b has 4000 milli-CPU and 16000 MiB free, not"),
    ],
)
def test_a_broken_document_is_refused_by_path_and_value(path, value, message):
    with pytest.raises(InvalidSnapshot) as error:
        load(broken(path, value))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("", "schema", "schema: the field is missing"),
        ("", "nodes", "nodes: the field is missing"),
        ("nodes 0", "name", "nodes[0].name: the field is missing"),
        ("nodes 0 devices 0", "memoryMiB", "nodes[0].devices[0].memoryMiB: the field is missing"),
        ("holders 0 devices 0", "milli", "holders[0].devices[0].milli: the field is missing"),
    ],
)
def test_a_missing_field_is_named(path, name, message):
    document = deepcopy(WRITTEN_BY_HAND)
    del inside(document, path.split())[name]
    with pytest.raises(InvalidSnapshot) as error:
        load(document)
    assert str(error.value) == message


@pytest.mark.parametrize("document", [[], None, "x"])
def test_what_is_no_object_is_no_document(document):
    with pytest.raises(InvalidSnapshot, match=r"^the document: .* is not an object$"):
        load(document)


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(InvalidSnapshot) as error:
        load(broken("nodes 0 ready", "x" * 1000))
    assert len(str(error.value)) < 200


def broken(path, value):
    document = deepcopy(WRITTEN_BY_HAND)
    *way, name = path.split()
    holder = inside(document, way)
    holder[int(name) if name.isdigit() else name] = value
    return document


def inside(value, way):
    for step in way:
        value = value[int(step) if step.isdigit() else step]
    return value
