# SPDX-License-Identifier: Apache-2.0
import dataclasses

import msgspec
import pytest

from gpupack_agent import cdi
from gpupack_agent.admission import admit
from gpupack_agent.cgroups import CgroupState
from gpupack_agent.gang_memory import GangMemory, memory_owner
from gpupack_agent.inventory.base import Injection
from gpupack_agent.node_pod import NodePod
from gpupack_agent.pods import Start, view
from gpupack_crds import names

GANG = "uid-of-job/1"


@pytest.fixture
def member(build):
    """A pod of a gang with one GPU, and the record of one that was prepared."""

    def made(name, index, *, gang=GANG, namespace="team", **fields):
        pod = build.pod(name, build.share(index), gang=gang, **fields)
        return dataclasses.replace(pod, namespace=namespace)

    return made


def prepared(pod, node, token):
    return admit(Start(pod, "worker", names.GPU, frozenset({token})), node)


def test_the_first_pod_of_a_gang_keeps_its_own_memory(build, member):
    pod = member("a", 0)
    assert prepared(pod, build.node(pods=[pod]), "gpu-0").memory_owner_uid == "uid-a"


def test_the_second_pod_gets_the_memory_of_the_first(build, member):
    first, second = member("a", 0), member("b", 1)
    record = prepared(first, build.node(pods=[first, second]), "gpu-0")
    found = prepared(second, build.node(records=[record], pods=[first, second]), "gpu-1")
    assert found.memory_owner_uid == "uid-a"


@pytest.mark.parametrize("other", [{"gang": "uid-of-job/2"}, {"namespace": "other"}, {"gang": ""}])
def test_pods_of_another_gang_attempt_or_namespace_share_nothing(build, member, other):
    first, stranger = member("a", 0), member("b", 1, **other)
    record = prepared(first, build.node(pods=[first, stranger]), "gpu-0")
    found = memory_owner(stranger, build.node(records=[record], pods=[first, stranger]))
    assert found == ("uid-b" if stranger.gang else "")


def test_the_memory_of_a_pod_that_has_ended_is_not_mounted(build, member):
    first, second = member("a", 0, finished=True), member("b", 1)
    record = dataclasses.replace(
        build.record("a", build.share(0)), gang=GANG, memory_owner_uid="uid-a"
    )
    node = build.node(records=[record], pods=[first, second])
    assert memory_owner(second, node) == "uid-b"
    gone = build.node(records=[record], pods=[second], cgroups={"uid-a": CgroupState.EMPTY})
    assert memory_owner(second, gone) == "uid-b"


def test_a_container_that_restarts_keeps_the_memory_that_it_had(build, member):
    first, second, third = member("a", 0), member("b", 1), member("c", 2)
    pods = [first, second, third]
    of_second = prepared(second, build.node(pods=pods), "gpu-1")
    of_first = dataclasses.replace(
        build.record("a", build.share(0), tokens=("gpu-0",)), gang=GANG, memory_owner_uid="uid-b"
    )
    node = build.node(records=[of_first, of_second], pods=pods)
    assert memory_owner(first, node) == "uid-b"
    assert memory_owner(second, node) == "uid-b"
    assert memory_owner(third, node) == "uid-b"


def test_the_spec_mounts_the_owners_volume_where_it_can_be_written(build):
    memory = GangMemory("/data/kubelet/")
    record = dataclasses.replace(build.record("b"), gang=GANG, memory_owner_uid="uid-a")
    spec = cdi.render_spec(record, memory.with_shared_memory(Injection(), record), simulated=True)
    (mount,) = spec["devices"][0]["containerEdits"]["mounts"]
    path = "/data/kubelet/pods/uid-a/volumes/kubernetes.io~empty-dir/shm"
    assert (mount["hostPath"], mount["containerPath"]) == (path, "/dev/shm")
    assert mount["options"][0] == "rw"


@pytest.mark.parametrize("owner", ["", "uid-b"])
def test_an_owner_and_a_pod_without_a_gang_get_no_mount(build, owner):
    record = dataclasses.replace(build.record("b"), memory_owner_uid=owner)
    assert GangMemory("/var/lib/kubelet").with_shared_memory(Injection(), record) == Injection()


def test_a_record_is_read_back_with_its_gang(build, tmp_path):
    folder = cdi.SpecFolder(tmp_path)
    record = dataclasses.replace(
        build.record("b"), peers=(build.share(1),), gang=GANG, memory_owner_uid="uid-a"
    )
    folder.write(record, Injection(), simulated=True)
    again = cdi.SpecFolder(tmp_path)
    again.load()
    assert again.records == (record,)


MEMORY = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
MOUNT = {"name": "shm", "mountPath": "/dev/shm"}


def gang_of(build, *, volume=MEMORY, mount=MOUNT, containers=("worker",), mounting=("worker",)):
    """Which gang's memory a pod has by its annotation and its volumes."""
    tree = build.pod_json("a", build.share(0), gpus=dict.fromkeys(containers, 1))
    tree["metadata"]["annotations"][names.GANG_MEMORY_ANNOTATION] = GANG
    tree["spec"]["volumes"] = [volume]
    for each in tree["spec"]["containers"]:
        each["volumeMounts"] = [mount] if each["name"] in mounting else []
    return view(msgspec.convert(tree, NodePod)).gang


def test_a_pod_with_our_tmpfs_is_of_the_gang_that_its_binding_names(build):
    assert gang_of(build) == GANG
    assert gang_of(build, mount=MOUNT | {"mountPath": "/dev/shm/"}) == GANG


@pytest.mark.parametrize(
    "volume",
    [
        {"name": "shm", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "HugePages"}},
        {"name": "shm", "hostPath": {"path": "/dev/shm"}},
        {"name": "shm", "persistentVolumeClaim": {"claimName": "data"}},
        MEMORY | {"name": "other"},
    ],
    ids=["on disk", "huge pages", "host path", "claim", "another name"],
)
def test_a_pod_without_our_tmpfs_has_no_common_memory(build, volume):
    assert gang_of(build, volume=volume) == ""


@pytest.mark.parametrize(
    "mount",
    [
        MOUNT | {"mountPath": "/data"},
        MOUNT | {"subPath": "part"},
        MOUNT | {"subPathExpr": "$(HOSTNAME)"},
        MOUNT | {"readOnly": True},
        MOUNT | {"name": "other"},
    ],
    ids=["elsewhere", "a part", "a part by a variable", "to read only", "another volume"],
)
def test_a_container_that_has_not_all_of_it_at_dev_shm_has_no_common_memory(build, mount):
    assert gang_of(build, mount=mount) == ""


def test_each_container_with_gpus_must_mount_it(build):
    two = ("worker", "second")
    assert gang_of(build, containers=two) == ""
    assert gang_of(build, containers=two, mounting=two) == GANG


def test_a_container_without_gpus_gets_none_for_the_pod(build):
    assert gang_of(build, mounting=("proxy",)) == ""
