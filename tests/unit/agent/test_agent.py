# SPDX-License-Identifier: Apache-2.0
"""The whole agent against a kubelet and an API server that speak their protocols."""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys

import aiohttp
import pytest
from aiohttp import web
from fake_api import serving

from gpupack_agent import agent, liveness
from gpupack_agent.api import deviceplugin_pb2 as api
from gpupack_agent.inventory.simulated import simulated_uuid
from gpupack_crds import names

SIMULATED = "nodes: [{match: node-1, devices: [{model: H200, memoryMiB: 1000, count: 4}]}]"


@pytest.fixture
def environ(cluster, kubelet, cgroups, tmp_path):
    (tmp_path / "simulated.yaml").write_text(SIMULATED)
    return {
        "NODE_NAME": "node-1",
        "KUBECONFIG": cluster.kubeconfig,
        "GPUPACK_INVENTORY": "simulated",
        "GPUPACK_SIMULATED_FILE": str(tmp_path / "simulated.yaml"),
        "GPUPACK_SCAN_SECONDS": "0.1",
        "GPUPACK_KUBELET_DIR": str(kubelet.folder),
        "GPUPACK_CDI_DIR": str(tmp_path / "cdi"),
        "GPUPACK_CGROUP_DIR": str(cgroups.root),
        "GPUPACK_PROBE_FILE": str(tmp_path / "alive"),
        "GPUPACK_PRESTART_WAIT_SECONDS": "3",
    }


@contextlib.asynccontextmanager
async def running(environ):
    task = asyncio.create_task(agent.run(agent.Settings.from_environ(environ), environ))
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def registered(kubelet, resource=names.GPU):
    async with asyncio.timeout(30):
        while not kubelet.registered(resource):
            await asyncio.sleep(0.02)
    stub = kubelet.plugin(resource)
    stream = stub.ListAndWatch(api.Empty())
    return stub, stream


def uuids(cluster):
    node = cluster.server.objects[f"{names.API_PREFIX}/gpunodes/node-1"]
    return [device["uuid"] for device in node["status"]["devices"]]


async def test_a_pod_gets_its_devices_from_the_start_to_the_end(
    environ, cluster, kubelet, cgroups, build, tmp_path
):
    async with running(environ):
        stub, stream = await registered(kubelet)
        tickets = (await stream.read()).devices
        assert [ticket.ID for ticket in tickets] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
        uuid = uuids(cluster)[1]
        share = build.share()
        pod = build.pod_json("a", type(share)(uuid=uuid, percent=100, memory_mib=1000))
        cluster.server.add_pod(pod)
        kubelet.tickets["a"] = ["gpu-3"]
        cgroups.add("a")
        await stub.PreStartContainer(api.PreStartContainerRequest(devices_ids=["gpu-3"]))
        (spec,) = (tmp_path / "cdi").glob("*.json")
        assert uuid in spec.read_text()
        assert liveness.problem(tmp_path / "alive", ready=False) == ""


async def test_slots_for_shares_are_handed_out_beside_whole_gpus(environ, kubelet):
    async with running(environ):
        _, stream = await registered(kubelet, names.GPU_SHARE)
        tickets = (await stream.read()).devices
        assert len(tickets) == 4 * names.SHARE_SLOTS_PER_GPU
        assert tickets[0].ID == "share-0"


async def test_gpunode_is_written_before_the_plugin_registers(environ, cluster, kubelet):
    async with running(environ):
        await registered(kubelet)
        assert len(uuids(cluster)) == 4


async def test_a_simulated_gpu_that_fails_leaves_allocatable(environ, kubelet, tmp_path):
    async with running(environ):
        _, stream = await registered(kubelet)
        await stream.read()
        failed = SIMULATED.replace("count: 4", "count: 4, health: Failed")
        (tmp_path / "simulated.yaml").write_text(failed)
        tickets = (await asyncio.wait_for(stream.read(), 5)).devices
        assert [ticket.health for ticket in tickets] == ["Unhealthy"] * 4


async def test_what_dcgm_exporter_says_of_a_gpu_reaches_gpunode(environ, cluster, kubelet):
    uuid = simulated_uuid("node-1", 1)

    async def shown(_request):
        return web.Response(text=f'DCGM_FI_DEV_XID_ERRORS{{UUID="{uuid}"}} 79\n')

    app = web.Application()
    app.router.add_get("/metrics", shown)
    async with serving(app) as address:
        port = address.rpartition(":")[2]
        pod = {
            "metadata": {
                "namespace": "gpu-operator",
                "name": "dcgm-exporter-x",
                "uid": "uid-exporter",
                "resourceVersion": "1",
                "annotations": {names.DCGM_EXPORTER_ANNOTATION: port},
            },
            "status": {"phase": "Running", "podIP": "127.0.0.1"},
        }
        cluster.server.add_pod(pod)
        found = {"GPUPACK_DCGM_EXPORTER": "auto", "GPUPACK_DCGM_NAMESPACES": "gpu-operator"}
        async with running(environ | found):
            await registered(kubelet)
            node = cluster.server.objects[f"{names.API_PREFIX}/gpunodes/node-1"]
            async with asyncio.timeout(30):
                while node["status"]["healthy"] != 3:
                    await asyncio.sleep(0.05)
                    node = cluster.server.objects[f"{names.API_PREFIX}/gpunodes/node-1"]
    assert [device.get("health") for device in node["status"]["devices"]].index("Failed") == 1


async def test_pods_that_could_not_be_read_are_counted_where_the_administrator_asks_for_it(
    environ, cluster
):
    cluster.server.put("/api/v1/namespaces/team/pods/odd", {"metadata": {"name": 7}})
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shown = f"http://127.0.0.1:{port}/metrics"
    async with (
        running(environ | {"GPUPACK_METRICS_PORT": str(port)}),
        asyncio.timeout(30),
        aiohttp.ClientSession() as http,
    ):
        text = ""
        while 'gpupack_unreadable_objects_total{kind="pods"} 1.0' not in text:
            await asyncio.sleep(0.05)
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(shown) as response:
                    text = await response.text()


async def test_without_the_api_server_the_plugin_registers_all_the_same(
    environ, cluster, kubelet, monkeypatch
):
    monkeypatch.setattr("gpupack_agent.agent.GPUNODE_SECONDS", 0.1)
    cluster.server.down = True
    async with running(environ):
        await registered(kubelet)


async def test_a_part_that_dies_ends_the_agent(environ, monkeypatch):
    async def dies(*_arguments, **_keywords):
        raise RuntimeError("no more heart")

    monkeypatch.setattr("gpupack_kube.heartbeat.beat_forever", dies)
    with pytest.raises(ExceptionGroup):
        await agent.run(agent.Settings.from_environ(environ), environ)


async def test_the_process_fails_with_a_clear_line_where_there_is_no_inventory(environ, tmp_path):
    (tmp_path / "simulated.yaml").unlink()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gpupack_agent", "run"),
        env=environ | {"PYTHONPATH": ":".join(sys.path)},
        stderr=subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"CRITICAL gpupack_agent: simulated inventory" in errors
    assert b"Traceback" not in errors


async def test_a_signal_ends_the_process_in_order(environ, kubelet):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gpupack_agent", "run"),
        env=environ | {"PYTHONPATH": ":".join(sys.path)},
        stderr=subprocess.DEVNULL,
    )
    await registered(kubelet)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 10) == 0
    assert list((kubelet.folder / "device-plugins").glob("gpupack*")) == []


async def test_beside_another_device_plugin_nothing_registers_and_the_agent_is_ready(
    environ, cluster, kubelet, tmp_path
):
    kubelet.allocatable = {"nvidia.com/gpu": ["GPU-5a"]}
    async with running(environ | {"GPUPACK_OBSERVED_RESOURCES": "nvidia.com/gpu"}):
        async with asyncio.timeout(8):
            while liveness.problem(tmp_path / "alive", ready=True):
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        assert kubelet.registrations == []
        status = cluster.server.objects[f"{names.API_PREFIX}/gpunodes/node-1"]["status"]
        assert (status["mode"], status["resources"]) == ("observed", ["nvidia.com/gpu"])
        assert len(status["devices"]) == 4


def test_an_agent_loads_neither_the_official_client_nor_numpy_of_which_it_needs_nothing():
    loaded = "import sys, gpupack_agent.agent; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", loaded], check=True, capture_output=True, text=True
    ).stdout.split()
    assert not {"kubernetes", "numpy", "gpupack_core", "requests"} & set(modules)
