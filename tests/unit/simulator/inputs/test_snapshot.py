# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace

import pytest
from simulator_builders import job, node, run

from gpupack_placement import (
    Cluster,
    Device,
    DeviceUuid,
    Grant,
    Placement,
    decide,
    policy_named,
    snapshot,
)
from gpupack_simulator import InvalidInput, Sampling
from gpupack_simulator.inputs.snapshot import cluster_of, read_snapshot


def written(tmp_path, document):
    path = tmp_path / "state.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def busy_cluster():
    cluster = Cluster([node("a")], tie_seed=5)
    cluster.take("tenant", decide(cluster, job("x", 3).request, policy_named("first-fit")))
    return cluster


def test_a_snapshot_comes_back_with_its_holders(tmp_path):
    document = read_snapshot(written(tmp_path, snapshot.dump(busy_cluster())))
    assert snapshot.dump(cluster_of(document)) == snapshot.dump(busy_cluster())


def test_a_snapshot_that_is_no_json_is_reported(tmp_path):
    with pytest.raises(InvalidInput, match=r"state.json: is not a JSON object: JSON is malformed"):
        read_snapshot(written(tmp_path, "{nodes: ["))


def test_a_snapshot_that_is_a_list_is_reported(tmp_path):
    with pytest.raises(InvalidInput, match=r"is not a JSON object: Expected `object`, got `array`"):
        read_snapshot(written(tmp_path, []))


def test_a_snapshot_of_another_version_is_reported(tmp_path):
    with pytest.raises(InvalidInput, match=r"state.json: .*schema"):
        read_snapshot(written(tmp_path, {"schema": 99, "nodes": []}))


@pytest.mark.parametrize("wrong", [{"foo": 1}, {"schema": 99}])
def test_errors_that_adopt_does_not_fix_are_reported_without_it(tmp_path, wrong):
    with pytest.raises(InvalidInput) as caught:
        read_snapshot(written(tmp_path, snapshot.dump(busy_cluster()) | wrong))
    assert "--adopt" not in str(caught.value)


def test_a_snapshot_in_which_a_gpu_is_given_twice_is_reported(tmp_path):
    document = snapshot.dump(busy_cluster())
    document["holders"].append(document["holders"][0] | {"holder": "other"})
    with pytest.raises(InvalidInput, match=r"state.json: .*holders\[1\].*; --adopt holds it"):
        read_snapshot(written(tmp_path, document))


def test_holdings_of_a_live_ledger_are_adopted_unchanged(tmp_path):
    document = snapshot.dump(busy_cluster())
    document["holders"].append(document["holders"][0] | {"holder": "other", "node": "away"})
    cluster = cluster_of(read_snapshot(written(tmp_path, document), adopt=True), adopt=True)
    assert cluster.placement_of("other").node == "away"
    assert run(cluster, [job("one", 1, lasts=1)]).jobs[0].started == 0


def test_slices_of_a_snapshot_count_neither_as_gpus_nor_as_allocated():
    cut = Device(DeviceUuid("MIG-1"), 4, "GPU", 10_000, profile="1g.10gb", parent="GPU-9")
    whole = node("a")
    cluster = Cluster([replace(whole, devices=(*whole.devices, cut))])
    cluster.take("tenant", Placement("a", (Grant("MIG-1", 1000, 10_000),)))
    sampling = Sampling(each_instant=True, causes=True, by_node=True)
    course = run(cluster, [job("one", 1, lasts=2)], sampling=sampling)
    first, last = course.samples[0], course.samples[-1]
    assert (first.allocated_milli, first.allocated_by_node, last.allocated_milli) == (
        1000,
        {"a": 1000},
        0,
    )
    assert sum(last.free_by_cause.values()) == last.capacity_milli == 4000
    assert len(course.nodes[0].devices) == 4
    assert {held.job for held in course.occupancy} == {"one"}


def test_a_document_that_is_nested_too_deeply_is_an_error(tmp_path):
    path = tmp_path / "state.json"
    path.write_text('{"a": ' + "[" * 100_000)
    with pytest.raises(InvalidInput, match=r"state.json: is nested too deeply"):
        read_snapshot(path)
