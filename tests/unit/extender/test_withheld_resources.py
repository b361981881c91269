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


async def test_where_gpupack_alone_hands_out_gpus_nvidias_name_is_withheld(published):
    published.world.add_node("a")
    assert await published() == OBSERVED


async def test_where_a_node_offers_it_too_it_is_not(published):
    published.world.add_node("a")
    published.world.add_observed_node("b")
    assert await published() == ""


async def test_where_gpupack_hands_out_none_it_is_not(published):
    assert await published() == ""
    published.world.ledger.nodes.upsert(observed_node("b", gpus=0))
    published.world.ledger.gpus.upsert(gpu_node("b", mode="observed", resource=OBSERVED))
    assert await published() == ""


async def test_it_is_written_when_it_changes(published, server):
    published.world.add_node("a")
    for _ in range(3):
        await published()
    assert len(server.writes) == 1
    published.world.add_observed_node("b")
    assert await published() == ""


async def test_what_another_made_of_the_configmap_is_put_right_within_ten_minutes(
    published, server
):
    published.world.add_node("a")
    await published()
    server.objects[PATH]["data"] = {"resources": "example.org/other"}
    published.world.now += AGAIN_SECONDS
    assert await published() == OBSERVED
