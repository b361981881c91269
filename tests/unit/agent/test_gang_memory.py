# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest

from gpupack_agent import cdi
from gpupack_agent.admission import admit
from gpupack_agent.cgroups import CgroupState
from gpupack_agent.gang_memory import GangMemory, memory_owner
from gpupack_agent.inventory.base import Injection
from gpupack_agent.pods import Start, view
from gpupack_crds import names
from gpupack_kube import objects

GANG = "uid-of-job/1"


@pytest.fixture
def member(build):
    """A pod of a gang with one GPU, and the record of one that was prepared."""

    def made(name, index, *, gang=GANG, namespace="team", **fields):
        pod = build.pod(name, build.share(index), gang=gang, **fields)
        return dataclasses.replace(pod, namespace=namespace)

    return made


def prepared(pod, node, ticket):
    return admit(Start(pod, "worker", names.GPU, frozenset({ticket})), node)


def test_the_first_pod_of_a_gang_keeps_its_own_memory(build, member):
    pod = member("a", 0)
    assert prepared(pod, build.node(pods=[pod]), "gpu-0").memory_of == "uid-a"


def test_the_second_pod_gets_the_memory_of_the_first(build, member):
    first, second = member("a", 0), member("b", 1)
    record = prepared(first, build.node(pods=[first, second]), "gpu-0")
    found = prepared(second, build.node(records=[record], pods=[first, second]), "gpu-1")
    assert found.memory_of == "uid-a"


@pytest.mark.parametrize("other", [{"gang": "uid-of-job/2"}, {"namespace": "other"}, {"gang": ""}])
def test_pods_of_another_gang_attempt_or_namespace_share_nothing(build, member, other):
    first, stranger = member("a", 0), member("b", 1, **other)
    record = prepared(first, build.node(pods=[first, stranger]), "gpu-0")
    found = memory_owner(stranger, build.node(records=[record], pods=[first, stranger]))
    assert found == ("uid-b" if stranger.gang else "")


def test_the_memory_of_a_pod_that_has_ended_is_not_mounted(build, member):
    first, second = member("a", 0, finished=True), member("b", 1)
    record = dataclasses.replace(build.record("a", build.share(0)), gang=GANG, memory_of="uid-a")
    node = build.node(records=[record], pods=[first, second])
    assert memory_owner(second, node) == "uid-b"
    gone = build.node(records=[record], pods=[second], cgroups={"uid-a": CgroupState.EMPTY})
    assert memory_owner(second, gone) == "uid-b"


def test_a_container_that_restarts_keeps_the_memory_that_it_had(build, member):
    first, second, third = member("a", 0), member("b", 1), member("c", 2)
    pods = [first, second, third]
    of_second = prepared(second, build.node(pods=pods), "gpu-1")
    of_first = dataclasses.replace(
        build.record("a", build.share(0), tickets=("gpu-0",)), gang=GANG, memory_of="uid-b"
    )
    node = build.node(records=[of_first, of_second], pods=pods)
    assert memory_owner(first, node) == "uid-b"
    assert memory_owner(second, node) == "uid-b"
    assert memory_owner(third, node) == "uid-b"


def test_the_spec_mounts_the_owners_volume_where_it_can_be_written(build):
    memory = GangMemory("/data/kubelet/")
    record = dataclasses.replace(build.record("b"), gang=GANG, memory_of="uid-a")
    spec = cdi.render(record, memory.into(Injection(), record), simulated=True)
    (mount,) = spec["devices"][0]["containerEdits"]["mounts"]
    path = "/data/kubelet/pods/uid-a/volumes/kubernetes.io~empty-dir/shm"
    assert (mount["hostPath"], mount["containerPath"]) == (path, "/dev/shm")
    assert mount["options"][0] == "rw"


@pytest.mark.parametrize("owner", ["", "uid-b"])
def test_an_owner_and_a_pod_without_a_gang_get_no_mount(build, owner):
    record = dataclasses.replace(build.record("b"), memory_of=owner)
    assert GangMemory("/var/lib/kubelet").into(Injection(), record) == Injection()


def test_a_record_is_read_back_with_its_gang(build, tmp_path):
    folder = cdi.SpecFolder(tmp_path)
    record = dataclasses.replace(
        build.record("b"), peers=(build.share(1),), gang=GANG, memory_of="uid-a"
    )
    folder.write(record, Injection(), simulated=True)
    again = cdi.SpecFolder(tmp_path)
    again.load()
    assert again.records == (record,)


def test_the_gang_of_a_pod_is_read_from_its_annotation():
    meta = objects.ObjectMeta(annotations={names.GANG_MEMORY_ANNOTATION: GANG})
    assert view(objects.Pod(metadata=meta)).gang == GANG
