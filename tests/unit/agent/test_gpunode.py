# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib

import pytest

from gpupack_agent import heartbeat
from gpupack_agent.gpunode import GpuNodeWriter, status
from gpupack_agent.inventory.base import Findings
from gpupack_agent.roster import Roster
from gpupack_agent.settings import NodeSettings
from gpupack_crds import names

PATH = f"{names.API_PREFIX}/gpunodes/node-1"
WRITE = ("PUT", f"{PATH}/status")


@pytest.fixture
async def roster(build):
    filled = Roster()
    filled.update(Findings(devices=(build.device(0),), driver_version="1", cuda_version="2"))
    return filled


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(coroutine):
    task = asyncio.create_task(coroutine)
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_a_status_sums_its_devices_up(build):
    devices = (build.device(0), build.device(1, health="Failed"), build.device(2, simulated=True))
    found = status(Findings(devices=devices))
    assert (found.gpus, found.healthy, found.model) == (3, 2, "NVIDIA H200")
    assert (found.simulated, found.mode) == (True, "owned")


async def test_a_missing_gpunode_is_created_and_filled(cluster, roster):
    await GpuNodeWriter(cluster.api, roster, node="node-1").begin()
    written = cluster.server.objects[PATH]["status"]
    assert written["devices"][0]["uuid"] == "GPU-0"
    assert written["driverVersion"] == "1"
    assert "observedAt" in written


async def test_a_gpunode_that_is_right_is_not_written_again(cluster, roster):
    await GpuNodeWriter(cluster.api, roster, node="node-1").begin()
    await GpuNodeWriter(cluster.api, roster, node="node-1").begin()
    assert cluster.server.writes.count(WRITE) == 1


async def test_a_change_is_written_when_it_happens(cluster, roster, build):
    writer = GpuNodeWriter(cluster.api, roster, node="node-1")
    async with running(writer.run()):
        await writer.written.wait()
        roster.update(Findings(devices=(build.device(0, health="Failed", cause="XID 79"),)))
        await until(lambda: cluster.server.objects[PATH]["status"].get("healthy", 0) == 0)
    assert cluster.server.objects[PATH]["status"]["devices"][0]["cause"] == "XID 79"


async def test_a_gpu_that_the_last_agent_saw_and_this_one_does_not_is_reported(
    cluster, roster, build
):
    await GpuNodeWriter(cluster.api, roster, node="node-1").begin()
    later = Roster()
    later.update(Findings(devices=(build.device(1),)))
    await GpuNodeWriter(cluster.api, later, node="node-1").begin()
    devices = cluster.server.objects[PATH]["status"]["devices"]
    assert [(each["uuid"], each.get("health")) for each in devices] == [
        ("GPU-0", "Failed"),
        ("GPU-1", None),
    ]


async def test_deleting_the_gpunode_forgets_a_gpu_that_is_gone(cluster, roster, build):
    writer = GpuNodeWriter(cluster.api, roster, node="node-1")
    await writer.begin()
    roster.update(Findings(devices=(build.device(1),)))
    del cluster.server.objects[PATH]
    await writer.begin()
    assert [each["uuid"] for each in cluster.server.objects[PATH]["status"]["devices"]] == ["GPU-1"]


async def test_an_outage_of_the_api_server_is_survived(cluster, roster):
    cluster.server.down = True
    writer = GpuNodeWriter(cluster.api, roster, node="node-1")
    async with running(writer.run()):
        await asyncio.sleep(0.1)
        cluster.server.down = False
        await asyncio.wait_for(writer.written.wait(), 5)


async def test_the_heartbeat_is_renewed_and_survives_an_outage(cluster):
    settings = NodeSettings(name="node-1", system_namespace="s", heartbeat_duration_seconds=0.2)
    path = "/apis/coordination.k8s.io/v1/namespaces/s/leases/gpunode-node-1"
    cluster.server.down = True
    async with running(heartbeat.beat_forever(cluster.api, settings, holder="agent-x")):
        await asyncio.sleep(0.1)
        cluster.server.down = False
        await until(lambda: path in cluster.server.objects)
        created = len(cluster.server.writes)
        await until(lambda: len(cluster.server.writes) > created + 1)
    assert cluster.server.objects[path]["spec"]["holderIdentity"] == "agent-x"
