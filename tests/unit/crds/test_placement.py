# SPDX-License-Identifier: Apache-2.0
"""Placements by node and by worker, and the size of the largest status in etcd."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpupack_crds.devices import DeviceShare
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.placement import NodePlacement, WorkerPlacement, by_node, by_worker, nodes_of


def devices(number, *uuids, percent=100, memory=(80000,)):
    return tuple(
        DeviceShare(uuid=f"{number}/{uuid}", percent=percent, memory_mib=memory[i % len(memory)])
        for i, uuid in enumerate(uuids)
    )


@st.composite
def gangs(draw):
    """Return the workers of a job with equal numbers of GPUs, some of two sizes."""
    gpus, percent = draw(st.integers(0, 3)), draw(st.sampled_from([100, 40]))
    nodes = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=20))
    memory = draw(st.sampled_from([(80000,), (80000, 40000)]))
    return tuple(
        WorkerPlacement(i, node, devices(i, *range(gpus), percent=percent, memory=memory))
        for i, node in enumerate(nodes)
    )


@given(gangs())
def test_entries_packed_by_node_are_read_by_worker(gang):
    assert by_worker(by_node(gang)) == gang


def test_workers_of_a_node_are_one_entry_with_their_gpus_in_order():
    gang = [WorkerPlacement(i, "ab"[i == 3], devices(i, "x", "y")) for i in range(6)]
    entry, other = by_node(gang)
    assert (entry.node, entry.workers, entry.memory_mib) == ("a", "0-2,4-5", (80000,))
    assert entry.gpus == tuple(f"{i}/{gpu}" for i in (0, 1, 2, 4, 5) for gpu in "xy")
    assert (other.node, other.workers, nodes_of((entry, other))) == ("b", "3", ("a", "b"))


def test_no_gpu_is_left_out_where_the_text_does_not_fit_the_gpus():
    odd = NodePlacement(node="a", workers="0-1", gpus=("x", "y", "z"), memory_mib=(1, 2))
    uuids = [[device.uuid for device in each.devices] for each in by_worker([odd])]
    assert uuids == [["x"], ["y", "z"]]


def test_indices_beyond_any_gang_cost_nothing():
    endless = NodePlacement(node="a", workers="1020-999999999", gpus=())
    assert [each.worker for each in by_worker([endless])] == [1020, 1021, 1022, 1023]


def test_a_status_of_an_earlier_version_is_read_and_its_placement_claims_nothing():
    """The old form was [{worker: 0, node: a, devices: […]}]; the API server prunes the rest."""
    attempts = [
        {"number": 1, "startedAt": "2026-11-20T12:00:00Z", "nodes": ["a", "b", "c"]},
        {"number": 2, "startedAt": "2026-11-20T13:00:00Z", "nodes": ["a"]},
        {"number": 3, "startedAt": "2026-11-20T14:00:00Z", "nodes": []},
    ]
    before = {"phase": "Running", "placement": [{"node": "a"}], "attempts": attempts}
    status = msgspec.json.decode(msgspec.json.encode(before), type=GpuJobStatus)
    assert by_worker(status.placement) == ()
    assert [attempt.nodes for attempt in status.attempts] == ["a +2", "a", ""]
    written = msgspec.to_builtins(status)["attempts"]
    assert [attempt.get("nodes") for attempt in written] == ["a +2", "a", None]
