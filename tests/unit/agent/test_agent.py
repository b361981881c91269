# SPDX-License-Identifier: Apache-2.0
"""The whole agent against a kubelet and an API server that speak their protocols."""

import asyncio
import contextlib
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import aiohttp
import pytest
import recorded_driver
import stand_in_driver
from aiohttp import web
from dashboard_queries import empty, queries
from fake_api import serving
from harness import STATE
from nvml_recording import uuid_of
from prometheus_run import FILES, started
from scraping import TOKEN, answer, metrics_environ

from gpupack_agent import agent, liveness
from gpupack_agent.api import deviceplugin_pb2 as api
from gpupack_agent.inventory.driver import DriverInventory
from gpupack_agent.inventory.driver_root import DriverSearch
from gpupack_agent.inventory.simulated import simulated_uuid
from gpupack_agent.pod_use import PodUse
from gpupack_crds import names

DRIVER = pathlib.Path(__file__).parents[2] / "helpers/recorded_driver.py"
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
        "GPUPACK_DEVICE_PLUGINS_DIR": str(kubelet.folder / "device-plugins"),
        "GPUPACK_KUBELET_ROOT_DIR": str(kubelet.folder),
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
    return [device["uuid"] for device in node["status"].get("devices", ())]


async def test_a_pod_gets_its_devices_from_the_start_to_the_end(
    environ, cluster, kubelet, cgroups, build, tmp_path
):
    async with running(environ):
        stub, stream = await registered(kubelet)
        tokens = (await stream.read()).devices
        assert [token.ID for token in tokens] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
        uuid = uuids(cluster)[1]
        share = build.share()
        pod = build.pod_json("a", type(share)(uuid=uuid, percent=100, memory_mib=1000))
        cluster.server.add_pod(pod)
        kubelet.tokens["a"] = ["gpu-3"]
        cgroups.add("a")
        await stub.PreStartContainer(api.PreStartContainerRequest(devices_ids=["gpu-3"]))
        (spec,) = (tmp_path / "cdi").glob("*.json")
        assert uuid in spec.read_text()
        assert liveness.problem(tmp_path / "alive", ready=False) == ""


async def test_share_tokens_are_handed_out_in_addition_to_whole_gpus(environ, kubelet):
    async with running(environ):
        _, stream = await registered(kubelet, names.GPU_SHARE)
        tokens = (await stream.read()).devices
        assert len(tokens) == 4 * names.SHARE_SLOTS_PER_GPU
        assert tokens[0].ID == "share-0"


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
        tokens = (await asyncio.wait_for(stream.read(), 30)).devices
        assert [token.health for token in tokens] == ["Unhealthy"] * 4


NO_NEW_WORK_SECONDS = 2.0


async def test_an_error_of_the_drivers_is_in_gpunode_within_two_seconds(
    environ, cluster, kubelet, tmp_path, monkeypatch
):
    """The recorded host, whose scans are far apart: the scheduler reads GPUNode."""
    xid = tmp_path / "xid"
    run = (sys.executable, "-B", recorded_driver.__file__, "load", "8", "--xid", str(xid))
    inventory = DriverInventory(
        DriverSearch(tmp_path), scan_seconds=600, timeout_seconds=30, run=run
    )
    monkeypatch.setattr(agent, "open_inventory", lambda *_, **__: inventory)
    path = f"{names.API_PREFIX}/gpunodes/node-1"

    def health():
        devices = cluster.server.objects[path]["status"]["devices"]
        return [each.get("health", "Healthy") for each in devices]

    async with running(environ):
        await registered(kubelet)
        assert health() == ["Healthy"] * 8
        began = asyncio.get_running_loop().time()
        (tmp_path / "new").write_text("79")
        (tmp_path / "new").rename(xid)
        async with asyncio.timeout(30):
            while health()[0] != "Failed":
                await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - began <= NO_NEW_WORK_SECONDS
        assert health() == ["Failed", *["Healthy"] * 7]


async def test_facts_of_dcgm_exporter_reach_gpunode(environ, cluster, kubelet):
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


async def test_unreadable_pods_are_a_metric(environ, cluster, tmp_path):
    cluster.server.put("/api/v1/namespaces/team/pods/odd", {"metadata": {"name": 7}})
    shown, port = metrics_environ(tmp_path)
    async with running(environ | shown), asyncio.timeout(30):
        text = ""
        while 'gpupack_unreadable_objects_total{kind="pods"} 1.0' not in text:
            await asyncio.sleep(0.05)
            with contextlib.suppress(aiohttp.ClientError):
                text = (await answer(port, tmp_path))[1]
    assert 'gpupack_agent_container_starts_total{outcome="held"} 0.0' in text


@pytest.fixture
def recorded(environ, tmp_path, monkeypatch):
    """An agent whose driver answers as an H200 under load did, and whose process is a pod's.

    The test has no cgroup of a pod, by which a node identifies it.
    """
    monkeypatch.setattr(
        agent,
        "open_inventory",
        lambda *_, **__: DriverInventory(
            DriverSearch(tmp_path),
            scan_seconds=0.5,
            timeout_seconds=10.0,
            run=(sys.executable, str(DRIVER), "load", "1"),
        ),
    )
    monkeypatch.setattr(agent, "PodUse", lambda: PodUse(pod_of=lambda _: "uid-a"))
    shown, port = metrics_environ(tmp_path)
    chosen = {"GPUPACK_INVENTORY": "nvml", "GPUPACK_MPS_DIR": str(tmp_path / "mps")}
    return environ | shown | chosen, port


async def test_no_query_of_the_dashboard_about_a_drivers_figures_is_empty(
    recorded, cluster, kubelet, build, tmp_path
):
    if not shutil.which("prometheus", path=str(STATE / "bin")):
        pytest.skip("there is no Prometheus: run `make prometheus`")
    chosen, port = recorded
    (tmp_path / "token").write_text(TOKEN)
    tls = {"ca_file": str(tmp_path / "tls.crt"), "server_name": "localhost"}
    job = {
        "job_name": "gpupack-agent",
        "scheme": "https",
        "honor_labels": True,
        "authorization": {"credentials_file": str(tmp_path / "token")},
        "tls_config": tls,
        "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"node": "node-1"}}],
    }
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"} | {"evaluation_interval": "1s"},
        "rule_files": [str(FILES / "rules.yaml")],
        "scrape_configs": [job],
    }
    async with running(chosen):
        await registered(kubelet)
        share = build.share()
        held = type(share)(uuid=uuid_of(0), percent=100, memory_mib=1000)
        cluster.server.add_pod(build.pod_json("a", held, phase="Running"))

        def ask():
            left = queries(of_a_driver=True)
            with started(configuration, tmp_path) as requests:
                for _ in range(50):
                    left = empty(requests, left)
                    if not left:
                        return left
                    time.sleep(0.5)
            return left

        assert await asyncio.to_thread(ask) == []


async def test_without_the_api_server_the_plugin_registers_all_the_same(
    environ, cluster, kubelet, monkeypatch
):
    monkeypatch.setattr("gpupack_agent.agent.GPUNODE_SECONDS", 0.1)
    cluster.server.down = True
    async with running(environ):
        await registered(kubelet)


async def test_a_part_that_fails_ends_the_agent(environ, monkeypatch):
    async def dies(*_arguments, **_keywords):
        raise RuntimeError("no more heart")

    monkeypatch.setattr("gpupack_kubeclient.heartbeat.beat_forever", dies)
    with pytest.raises(ExceptionGroup):
        await agent.run(agent.Settings.from_environ(environ), environ)


async def test_a_setting_that_is_wrong_ends_the_process_with_a_clear_line(environ):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gpupack_agent", "run"),
        env=environ | {"PYTHONPATH": ":".join(sys.path), "GPUPACK_DRIVER_ROOT": "here"},
        stderr=subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"CRITICAL gpupack_agent: GPUPACK_DRIVER_ROOT='here' is not valid" in errors
    assert b"Traceback" not in errors


async def test_a_signal_ends_the_process_with_status_0(environ, kubelet):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gpupack_agent", "run"),
        env=environ | {"PYTHONPATH": ":".join(sys.path)},
        stderr=subprocess.DEVNULL,
    )
    await registered(kubelet)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert list((kubelet.folder / "device-plugins").glob("gpupack*")) == []


async def test_with_another_device_plugin_nothing_registers_and_the_agent_is_ready(
    environ, cluster, kubelet, tmp_path
):
    kubelet.allocatable = {"nvidia.com/gpu": ["GPU-5a"]}
    async with running(environ | {"GPUPACK_OBSERVED_RESOURCES": "nvidia.com/gpu"}):
        async with asyncio.timeout(30):
            while liveness.problem(tmp_path / "alive", ready=True):
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        assert kubelet.registrations == []
        status = cluster.server.objects[f"{names.API_PREFIX}/gpunodes/node-1"]["status"]
        assert (status["mode"], status["resources"]) == ("observed", ["nvidia.com/gpu"])
        assert len(status["devices"]) == 4


def test_an_agent_loads_neither_the_official_client_nor_numpy():
    loaded = "import sys, gpupack_agent.agent; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", loaded], check=True, capture_output=True, text=True
    ).stdout.split()
    assert not {"kubernetes", "numpy", "gpupack_placement", "requests"} & set(modules)


@pytest.fixture
def real(environ, kubelet, tmp_path):
    """An agent that queries a driver, on a host with a GPU, a kubelet and no driver."""
    host = kubelet.folder
    device = host / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    chosen = {"GPUPACK_INVENTORY": "nvml", "GPUPACK_HOST_ROOT": str(host)}
    chosen["GPUPACK_KUBELET_ROOT_DIR"] = "/"
    return environ | chosen | {"GPUPACK_MPS_DIR": str(tmp_path / "mps")}, host


def condition(cluster):
    node = cluster.server.objects.get(f"{names.API_PREFIX}/gpunodes/node-1", {})
    reported = {each["type"]: each for each in node.get("status", {}).get("conditions", [])}
    return reported.get("InventoryUnavailable", {})


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


LAYOUTS = {
    "a distribution": ("/", "usr/lib64", "usr/bin"),
    "the GPU operator": ("/run/nvidia/driver", "usr/lib/x86_64-linux-gnu", "usr/bin"),
    "GKE": ("/home/kubernetes/bin/nvidia", "lib64", "bin"),
    "another": ("/opt/odd", "lib", "bin"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_an_agent_waits_for_a_driver_that_comes_later(real, cluster, kubelet, layout):
    environ, host = real
    root, libraries, programs = LAYOUTS[layout]
    setting = root if layout == "another" else "auto"
    async with running(environ | {"GPUPACK_DRIVER_ROOT": setting}):
        await registered(kubelet)
        await until(lambda: condition(cluster).get("status") == "True")
        assert condition(cluster)["reason"] == "DriverNotFound"
        assert "set agent.driverRoot" in condition(cluster)["message"]
        await asyncio.to_thread(stand_in_driver.install, host / root[1:], libraries, programs)
        await until(lambda: len(uuids(cluster)) == 2)
        assert (condition(cluster)["status"], condition(cluster)["reason"]) == (
            "False",
            "InventoryAvailable",
        )


async def test_an_agent_without_a_driver_keeps_its_gpus_and_takes_no_work(
    real, cluster, kubelet, monkeypatch
):
    monkeypatch.setattr("gpupack_agent.known_devices.STALE_SECONDS", 0.5)
    environ, host = real
    (root, libraries, programs), driver = LAYOUTS["a distribution"], host / "usr"
    await asyncio.to_thread(stand_in_driver.install, host / root[1:], libraries, programs)
    async with running(environ):
        _, stream = await registered(kubelet)
        assert [token.health for token in (await stream.read()).devices] == ["Healthy"] * 2
    kubelet.registrations.clear()
    driver.rename(host / "away")
    async with running(environ):
        _, stream = await registered(kubelet)
        async with asyncio.timeout(60):
            health = []
            while health != ["Unhealthy"] * 2:
                health = [token.health for token in (await stream.read()).devices]
        assert condition(cluster)["status"] == "True"
        assert len(uuids(cluster)) == 2
        (host / "away").rename(driver)
        async with asyncio.timeout(60):
            while health != ["Healthy"] * 2:
                health = [token.health for token in (await stream.read()).devices]


async def test_on_an_observed_node_an_agent_without_a_driver_reports_too(
    real, cluster, kubelet, tmp_path
):
    kubelet.allocatable = {"nvidia.com/gpu": ["GPU-5a"]}
    environ, _ = real
    async with running(environ | {"GPUPACK_OBSERVED_RESOURCES": "nvidia.com/gpu"}):
        await until(lambda: not liveness.problem(tmp_path / "alive", ready=True))
        await until(lambda: condition(cluster).get("status") == "True")
        status = cluster.server.objects[f"{names.API_PREFIX}/gpunodes/node-1"]["status"]
        assert status["mode"] == "observed"
        assert kubelet.registrations == []
