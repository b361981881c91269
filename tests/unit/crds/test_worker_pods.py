# SPDX-License-Identifier: Apache-2.0
"""Workers of a gang that share a pod."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_crds import names
from gpupack_crds.devices import DeviceShare
from gpupack_crds.gpujob import Distributed, GpuJobSpec, Share, Workload
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.placement import WorkerPlacement, by_node
from gpupack_crds.worker_pods import are_shared, pods_of, worker_pods


def gang(nodes, gpus=2):
    """Return a placement with a worker on each node, with GPUs named worker/number."""
    return by_node(
        WorkerPlacement(worker, node, tuple(gpu(f"{worker}/{i}") for i in range(gpus)))
        for worker, node in enumerate(nodes)
    )


def gpu(uuid):
    return DeviceShare(uuid=uuid, percent=100, memory_mib=1)


def seen(pods):
    return [(pod.node, pod.index, pod.workers) for pod in pods]


def test_workers_of_a_node_are_one_pod_with_their_gpus_in_order():
    pods = worker_pods(gang("abab"), shares=True, least=4)
    assert seen(pods) == [("a", 0, (0, 2)), ("b", 1, (1, 3))]
    assert [device.uuid for device in pods[1].devices] == ["1/0", "1/1", "3/0", "3/1"]
    assert are_shared(pods)


def test_a_gpu_of_a_pod_is_of_one_of_its_workers():
    first, second = worker_pods(gang("abab"), shares=True, least=4)
    assert [first.worker_with(f"{worker}/1") for worker in (0, 2)] == [0, 2]
    assert [second.worker_with(f"{worker}/0") for worker in (1, 3)] == [1, 3]
    assert second.worker_with("0/0") == 1
    assert worker_pods(gang("aa", gpus=0), shares=True, least=2)[0].worker_with("0/0") == 0


def test_extra_workers_have_a_pod_each():
    pods = worker_pods(gang("abbbaa"), shares=True, least=3)
    assert [pod.workers for pod in pods] == [(0,), (1, 2), (3,), (4,), (5,)]


def test_without_sharing_each_worker_is_a_pod():
    pods = worker_pods(gang("aab"), shares=False, least=3)
    assert seen(pods) == [("a", 0, (0,)), ("a", 1, (1,)), ("b", 2, (2,))]
    assert not are_shared(pods)


def test_pods_of_one_worker_each_are_not_shared():
    assert not are_shared(worker_pods(gang("abc"), shares=True, least=3))


def test_where_another_device_plugin_chooses_a_pod_names_no_gpus():
    assert worker_pods(gang("aa", gpus=0), shares=True, least=2)[0].devices == ()


@given(st.lists(st.sampled_from("abc"), max_size=12), st.booleans(), st.integers(1, 12))
def test_each_worker_and_each_gpu_is_in_one_pod(nodes, shares, least):
    pods = worker_pods(gang(nodes), shares=shares, least=least)
    assert sorted(worker for pod in pods for worker in pod.workers) == list(range(len(nodes)))
    for pod in pods:
        owners = [int(device.uuid.split("/")[0]) for device in pod.devices]
        assert owners == [worker for worker in pod.workers for _ in range(2)]
        assert {nodes[worker] for worker in pod.workers} == {pod.node}


def status_of(*layouts, nodes="aa"):
    """Return a status with attempts that share pods or not, the newest last."""
    entries = [
        {"number": number, "startedAt": "2026-11-21T12:00:00Z"}
        | ({} if shares is None else {"sharesPods": shares})
        for number, shares in enumerate(layouts, start=1)
    ]
    read = msgspec.convert({"attempts": entries}, GpuJobStatus)
    return msgspec.structs.replace(read, placement=gang(nodes))


@pytest.mark.parametrize(
    ("layouts", "shared"),
    [([True], True), ([None], False), ([], False), ([True, None], False), ([None, True], True)],
)
def test_the_entry_of_the_last_attempt_says_whether_pods_are_shared(layouts, shared):
    assert are_shared(pods_of(status_of(*layouts), least=2)) == shared


SHARED = {"workers": 2, "gpus": 1, "pod_per_worker": False}


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({}, True),
        ({"resource_name": "nvidia.com/gpu"}, False),
        ({"pod_per_worker": None}, True),
        ({"pod_per_worker": True}, False),
        ({"workers": 1}, False),
        ({"workers": 4, "min_workers": 1}, False),
        ({"workers": 4, "min_workers": 2}, False),
        ({"mig": "1g.18gb"}, False),
        ({"gpus": None, "share": Share(percent=40, memory="10Gi")}, False),
        ({"distributed": Distributed(backend="mpi")}, True),
        ({"distributed": Distributed(backend="mpi"), "pod_per_worker": None}, False),
        (
            {
                "distributed": Distributed(backend="mpi"),
                "workload": Workload(name="mpi"),
                "pod_per_worker": None,
            },
            True,
        ),
        ({"distributed": Distributed(backend="gloo")}, True),
    ],
)
def test_whole_gpus_of_workers_that_start_together_may_be_in_shared_pods(changes, shares):
    spec = GpuJobSpec(**(SHARED | changes))
    assert spec.may_share_pods == shares


def test_the_container_of_a_worker_has_a_name_that_kubernetes_takes():
    assert names.worker_container("worker", 3) == "worker-3"
    assert names.worker_of_container("my-worker-3") == 3
    others = ("worker", "worker-", "3", "-3", "worker-3a", "worker-1234567")
    assert [names.worker_of_container(each) for each in others] == [None] * 6
    longest = names.worker_container("x" * 63, 1023)
    assert (len(longest), longest[-5:]) == (63, "-1023")
