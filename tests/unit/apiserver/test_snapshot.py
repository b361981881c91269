# SPDX-License-Identifier: Apache-2.0
from gpupack_placement import dump, load

SNAPSHOT = ("admin", "get", "/snapshot")


async def test_the_simulator_reads_a_snapshot(call, model, server):
    server.rights.add(SNAPSHOT)
    found = await call("snapshot")
    assert found.status == 200, found.body
    assert dump(load(found.body)) == dump(model.ledger.cluster)
    assert [node["name"] for node in found.body["nodes"]] == ["a", "b"]


async def test_a_snapshot_needs_the_permission_to_get_its_path(call, server):
    server.rights.add(SNAPSHOT)
    assert (await call("snapshot", user="tenant")).status == 403
    assert (await call("snapshot", user="")).status == 401
