# SPDX-License-Identifier: Apache-2.0
"""Against an HTTP server on loopback, which shows what an exporter would."""

import asyncio
import contextlib
import pathlib

import aiohttp
import msgspec
import pytest
from aiohttp import web
from graded import graded

from gpupack_agent.dcgm import exporter as exporter_module
from gpupack_agent.dcgm.address import AUTO, ExporterPods, url_of
from gpupack_agent.dcgm.exporter import STALE_SECONDS, Exporter
from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.facts import GpuFacts
from gpupack_agent.pods import PodStore
from gpupack_crds.gpunode import GpuDevice
from gpupack_kubeclient.both import Both
from gpupack_kubeclient.objects import Pod

TEXT = (pathlib.Path(__file__).parent / "recordings/dcgm_exporter.prom").read_text()
FIRST, SECOND = (f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in (0, 1))


@contextlib.asynccontextmanager
async def shown(answer):
    """An exporter that answers so; yields its URL."""

    async def handler(request):
        return await answer(request)

    app = web.Application()
    app.router.add_get("/metrics", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
    finally:
        await runner.cleanup()


async def recorded(_request):
    return web.Response(text=TEXT)


def scan():
    gpus = [GpuFacts(uuid=uuid, index=n, name="A100") for n, uuid in enumerate((FIRST, SECOND))]
    devices = [
        GpuDevice(uuid=each.uuid, index=each.index, model="A100", memory_mib=81920) for each in gpus
    ]
    return Findings(devices=tuple(devices), facts=tuple(gpus))


async def scrape_once(exporter):
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=0.5), auto_decompress=False
    ) as session:
        await exporter.scrape(session)


async def test_the_exporters_figures_are_added_to_a_scan():
    async with shown(recorded) as url:
        exporter = Exporter(url)
        await scrape_once(exporter)
    found = exporter.merge(scan())
    assert found.facts[0].load.sm_active_percent == pytest.approx(91.3377)
    assert [gpu.health for gpu in graded(found)] == ["Healthy", "Failed"]
    assert found.facts[1].errors.nvlink_replays == 7


async def silent(_request):
    await asyncio.sleep(600)


async def dripping(request):
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b"#")
            await asyncio.sleep(0.01)
    return response


async def endless(request):
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b"# " * (1 << 18))
    return response


async def elsewhere(_request):
    raise web.HTTPFound("http://169.254.169.254/metrics")


async def broken(_request):
    return web.Response(status=500, text=TEXT)


async def compressed(_request):
    response = web.Response(text=TEXT)
    response.enable_compression(web.ContentCoding.gzip)
    return response


async def binary(_request):
    return web.Response(body=bytes(range(256)) * 4096)


@pytest.mark.parametrize(
    "answer", [silent, dripping, endless, elsewhere, broken, compressed, binary]
)
async def test_an_exporter_that_is_broken_or_hostile_changes_nothing(answer):
    async with shown(answer) as url:
        exporter = Exporter(url)
        async with asyncio.timeout(30):
            await scrape_once(exporter)
    assert exporter.merge(scan()) == scan()


async def test_the_last_figures_count_for_a_while_after_a_failure():
    now = 1000.0
    async with shown(recorded) as url:
        exporter = Exporter(url, now=lambda: now)
        await scrape_once(exporter)
    await scrape_once(exporter)
    now += STALE_SECONDS - 1
    assert graded(exporter.merge(scan()))[1].health == "Failed"
    now += 2
    assert exporter.merge(scan()) == scan()


async def test_a_failure_and_a_recovery_of_the_exporter_are_logged_once(caplog):
    caplog.set_level("INFO")
    async with shown(recorded) as url:
        port = url
    exporter = Exporter(port)
    await scrape_once(exporter)
    await scrape_once(exporter)
    assert caplog.text.count("only the driver's figures count") == 1
    async with shown(recorded) as url:
        exporter._url = url
        await scrape_once(exporter)
    assert caplog.text.count("answers again") == 1


async def test_an_ignored_xid_counts_again_after_another_value():
    number = 79

    async def of_one(_request):
        return web.Response(text=f'DCGM_FI_DEV_XID_ERRORS{{UUID="{FIRST}"}} {number}\n')

    async with shown(of_one) as url:
        exporter = Exporter(url)
        await scrape_once(exporter)
        assert graded(exporter.merge(scan()))[0].xids == (79,)
        exporter.forget()
        await scrape_once(exporter)
        assert graded(exporter.merge(scan()))[0].xids == ()
        number = 0
        await scrape_once(exporter)
        number = 79
        await scrape_once(exporter)
    assert graded(exporter.merge(scan()))[0].xids == (79,)


async def test_the_exporter_is_queried_periodically_and_no_scan_waits(monkeypatch):
    monkeypatch.setattr(exporter_module, "SCRAPE_SECONDS", 0.01)
    asks = asyncio.Queue()

    async def counted(request):
        asks.put_nowait(request)
        if asks.qsize() > 2:
            await asyncio.sleep(600)
        return await recorded(request)

    async with shown(counted) as url:
        exporter = Exporter(url)
        running = asyncio.create_task(exporter.run())
        async with asyncio.timeout(30):
            while asks.qsize() < 3:
                await asyncio.sleep(0.01)
        assert graded(exporter.merge(scan()))[1].health == "Failed"
        running.cancel()


def pod(name="dcgm-x", namespace="gpu-operator", phase="Running", ip="10.0.0.9", **meta):
    meta = {"labels": {"app": "nvidia-dcgm-exporter"}} | meta
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", **meta},
            "status": {"phase": phase, "podIP": ip},
        },
        Pod,
    )


def test_a_pod_with_the_exporters_labels_is_found():
    assert url_of(pod()) == "http://10.0.0.9:9400/metrics"
    assert url_of(pod(labels={"app.kubernetes.io/name": "dcgm-exporter"}))
    assert url_of(pod(ip="fd00::9")) == "http://[fd00::9]:9400/metrics"


def test_an_annotation_sets_the_exporters_port():
    of = {"labels": {}, "annotations": {"gpupack.dev/dcgm-exporter": "9401"}}
    assert url_of(pod(**of)) == "http://10.0.0.9:9401/metrics"


@pytest.mark.parametrize("port", ["", "0", "65536", "99999999999", "80/x", "²", "-1"])
def test_an_annotation_that_is_no_port_finds_none(port):
    assert url_of(pod(annotations={"gpupack.dev/dcgm-exporter": port})) is None


@pytest.mark.parametrize(
    "other",
    [
        {"phase": "Pending"},
        {"ip": ""},
        {"ip": "evil.example/x"},
        {"labels": {"app": "web"}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ],
)
def test_a_pod_that_does_not_run_or_is_no_exporter_is_none(other):
    assert url_of(pod(**other)) is None


def test_a_tenants_pod_with_the_exporters_labels_is_not_queried():
    pods = ExporterPods(["gpu-operator"])
    pods.replace([pod(namespace="team-a")])
    assert pods.url is None
    pods.upsert(pod(ip="10.0.0.9"))
    assert pods.url == "http://10.0.0.9:9400/metrics"


def test_a_deleted_exporter_pod_is_not_queried():
    pods = ExporterPods(["gpu-operator"])
    both = Both(PodStore(), pods)
    both.replace([pod("b", ip="10.0.0.2"), pod("a", ip="10.0.0.1")])
    assert pods.url == "http://10.0.0.1:9400/metrics"
    both.upsert(pod("a", phase="Failed"))
    assert pods.url == "http://10.0.0.2:9400/metrics"
    both.remove(pod("b"))
    assert pods.url is None


async def test_auto_queries_the_exporter_pod():
    async with shown(recorded) as url:
        port = url.rpartition(":")[2].removesuffix("/metrics")
        pods = ExporterPods(["gpu-operator"])
        exporter = Exporter(AUTO, pods)
        await scrape_once(exporter)
        assert exporter.figures == {}
        of = {"annotations": {"gpupack.dev/dcgm-exporter": port}}
        pods.upsert(pod(ip="127.0.0.1", **of))
        await scrape_once(exporter)
    assert set(exporter.figures) == {FIRST, SECOND}
