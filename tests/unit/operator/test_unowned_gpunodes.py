# SPDX-License-Identifier: Apache-2.0
"""GPUNodes without an owner."""

import datetime as dt

import msgspec
import pytest

from gpupack_crds.kinds import GpuNode
from gpupack_operator.unowned_gpunodes import GRACE_SECONDS, UnownedGpuNodes

PATH = "/apis/gpupack.dev/v1beta1/gpunodes/a"
NODE = "/api/v1/nodes/a"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "uid-node"}


@pytest.fixture
def clock(build):
    return {"now": build.at(0)}


@pytest.fixture
def store(server, clock):
    return UnownedGpuNodes(server.api, now=lambda: clock["now"])


@pytest.fixture
def shown(server, build, store):
    """The watch shows GPUNode a."""

    def show(**metadata):
        meta = {"name": "a", "uid": "uid-a", "resourceVersion": "3"}
        meta |= {"creationTimestamp": build.stamp(0)} | metadata
        server.put(PATH, {"metadata": meta, "spec": {}})
        store.replace([msgspec.convert({"metadata": meta}, GpuNode, strict=False)])

    return show


async def test_a_gpunode_without_an_owner_gets_its_node_as_owner(server, store, shown):
    server.put(NODE, {"metadata": {"name": "a", "uid": "uid-node"}})
    shown()
    await store.check()
    assert server.objects[PATH]["metadata"]["ownerReferences"] == [OWNER]


async def test_a_gpunode_without_a_node_is_deleted_after_a_while(server, store, shown, clock):
    shown()
    await store.check()
    assert PATH in server.objects
    clock["now"] += dt.timedelta(seconds=GRACE_SECONDS + 1)
    await store.check()
    assert PATH not in server.objects


async def test_a_gpunode_with_an_owner_is_left_to_garbage_collection(server, store, shown, clock):
    shown(ownerReferences=[OWNER])
    clock["now"] += dt.timedelta(seconds=GRACE_SECONDS + 1)
    await store.check()
    assert server.writes == []


async def test_an_unreachable_api_server_is_called_again(server, store, shown):
    server.put(NODE, {"metadata": {"name": "a", "uid": "uid-node"}})
    shown()
    server.down = True
    await store.check()
    server.down = False
    await store.check()
    assert server.objects[PATH]["metadata"]["ownerReferences"] == [OWNER]
