# SPDX-License-Identifier: Apache-2.0
"""Which resources no node offers, as it is published for the policy that warns of them."""

import pytest
from extender_builders import OBSERVED, World, gpu_node, observed_node
from fake_api import ApiServer, connected

from gpupack_extender.withheld_resources import AGAIN_SECONDS, WithheldResources

PATH = "/api/v1/namespaces/gpupack-system/configmaps/gpupack-withheld"


@pytest.fixture
async def server():
    found = ApiServer()
    async with connected(found.app()) as (found.api, _):
        found.put(PATH, {"metadata": {"name": "gpupack-withheld", "resourceVersion": "1"}})
        yield found


@pytest.fixture
def published(server):
    """What is published of a world's nodes."""
    world = World()
    task = WithheldResources(
        server.api,
        world.ledger,
        name="gpupack-withheld",
        namespace="gpupack-system",
        decides=lambda: True,
        clock=lambda: world.now,
    )

    async def look():
        await task.look()
        return server.objects[PATH]["data"]["resources"]

    look.world = world
    return look


async def test_nvidias_resource_is_withheld_if_only_gpupack_hands_out_gpus(published):
    published.world.add_node("a")
    assert await published() == OBSERVED


async def test_a_resource_that_a_node_offers_is_not_withheld(published):
    published.world.add_node("a")
    published.world.add_observed_node("b")
    assert await published() == ""


async def test_no_resource_is_withheld_if_gpupack_hands_out_no_gpus(published):
    assert await published() == ""
    published.world.ledger.nodes.upsert(observed_node("b", gpus=0))
    published.world.ledger.gpus.upsert(gpu_node("b", mode="observed", resource=OBSERVED))
    assert await published() == ""


async def test_withheld_resources_are_written_when_they_change(published, server):
    published.world.add_node("a")
    for _ in range(3):
        await published()
    assert len(server.writes) == 1
    published.world.add_observed_node("b")
    assert await published() == ""


async def test_foreign_changes_of_the_configmap_are_corrected_within_ten_minutes(published, server):
    published.world.add_node("a")
    await published()
    server.objects[PATH]["data"] = {"resources": "example.org/other"}
    published.world.now += AGAIN_SECONDS
    assert await published() == OBSERVED
