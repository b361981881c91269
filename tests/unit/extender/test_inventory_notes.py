# SPDX-License-Identifier: Apache-2.0
"""What a GPUNode says of why its node gets no work."""

import datetime as dt

import msgspec
import pytest
from extender_builders import World, gpu_node, node
from fake_api import ApiServer, connected

from gpupack_crds import names
from gpupack_extender.inventory_notes import MAX_WRITES, InventoryNotes

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def path(name):
    return f"{names.API_PREFIX}/gpunodes/{name}"


@pytest.fixture
async def cluster():
    """An API server; `cluster.api` is connected to it."""
    found = ApiServer()
    async with connected(found.app()) as (found.api, _):
        yield found


@pytest.fixture
def world(cluster):
    """Nodes a and b, whose agents list the same GPUs."""
    made = World()
    made.ledger.nodes.replace([node("a"), node("b")])
    for name in ("a", "b"):
        shows(made, cluster, gpu_node(name, prefix="a"))
    return made


@pytest.fixture
def notes(cluster, world):
    return InventoryNotes(cluster.api, world.ledger, decides=lambda: True, now=lambda: NOW)


def shows(world, cluster, shown):
    """The watch shows a GPUNode as the API server has it."""
    cluster.put(path(shown.metadata.name), msgspec.to_builtins(shown))
    cluster.objects[path(shown.metadata.name)]["metadata"]["resourceVersion"] = "1"
    world.ledger.gpus.upsert(shown)


def said(cluster, name):
    return cluster.objects[path(name)]["status"].get("conditions", [])


def seen(world, cluster, name):
    """The watch shows what was written."""
    written = {"conditions": said(cluster, name)}
    before = world.ledger.gpus.items[name]
    status = msgspec.convert(msgspec.to_builtins(before.status) | written, type(before.status))
    world.ledger.gpus.upsert(msgspec.structs.replace(before, status=status))


async def test_a_rejected_node_gets_one_condition_with_the_reason(cluster, world, notes):
    await notes.look()
    (condition,) = said(cluster, "b")
    assert (condition["type"], condition["status"]) == ("InventoryRejected", "True")
    assert condition["reason"] == "DuplicateGpus"
    assert "the agent of node a lists too" in condition["message"]
    assert said(cluster, "a") == []
    seen(world, cluster, "b")
    await notes.look()
    assert len(cluster.writes) == 1


async def test_the_end_of_a_rejection_is_reported(cluster, world, notes):
    await notes.look()
    seen(world, cluster, "b")
    world.ledger.nodes.remove(node("a"))
    await notes.look()
    (condition,) = said(cluster, "b")
    assert (condition["status"], condition["reason"]) == ("False", "InventoryAccepted")
    assert condition["message"] == "nothing contradicts it any more"


async def test_each_pass_writes_a_limited_number_of_conditions(cluster, world, notes):
    for number in range(MAX_WRITES + 5):
        name = f"n{number}"
        world.ledger.nodes.upsert(node(name))
        shows(world, cluster, gpu_node(name, prefix="a"))
    await notes.look()
    assert len(cluster.writes) == MAX_WRITES
