# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
from types import SimpleNamespace

import aiohttp
import pytest
from fake_api import ApiServer, connected
from scraping import answer, metrics_environ

from gpupack_operator import service
from gpupack_operator.settings import Settings


async def metrics(port, folder, *, until):
    """Return the metrics as soon as they contain a line."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                text = (await answer(port, folder))[1]
                if until in text:
                    return text
            await asyncio.sleep(0.05)


async def test_a_leader_counts_objects_that_its_watches_cannot_read(monkeypatch, tmp_path):
    shown, port = metrics_environ(tmp_path)
    server = ApiServer()
    server.put("/apis/batch/v1/namespaces/team/jobs/odd", {"metadata": {"name": 7}})
    stop = asyncio.Event()
    monkeypatch.setattr(service, "_stop_event", lambda: stop)
    monkeypatch.setattr(service.kopf, "operator", lambda **_: stop.wait())
    async with connected(server.app()) as (_, kubeconfig):
        environ = {
            "KUBECONFIG": kubeconfig,
            "POD_NAME": "operator-0",
            "GPUPACK_WORKLOAD_IMAGE": "gpupack/workloads:1",
            "GPUPACK_HEARTBEAT_FILE": str(tmp_path / "alive"),
        } | shown
        serving = asyncio.create_task(service.serve(Settings.from_environ(environ), environ))
        line = 'gpupack_unreadable_objects_total{kind="jobs"} 1.0'
        text = await metrics(port, tmp_path, until=line)
        assert "gpupack_operator_leading 1.0" in text
        for kind in ("gpujobs", "pods"):
            assert f'gpupack_unreadable_objects_total{{kind="{kind}"}} 0.0' in text
        stop.set()
        await asyncio.wait_for(serving, timeout=30)


class Broken:
    async def acquire(self):
        raise RuntimeError("a bug")


class Slow:
    """The Lease is written, and the answer does not come."""

    def __init__(self):
        self.holder = ""

    async def acquire(self):
        self.holder = "us"
        await asyncio.Event().wait()

    async def release(self):
        self.holder = ""


async def test_an_operator_whose_election_fails_does_not_lead():
    with pytest.raises(RuntimeError, match="a bug"):
        await service._wait_for_lease(Broken(), asyncio.Event())


async def test_an_operator_stopped_before_its_election_keeps_no_lease():
    stop, election = asyncio.Event(), Slow()
    asyncio.get_running_loop().call_later(0.01, stop.set)
    assert not await service._wait_for_lease(election, stop)
    assert election.holder == ""


class Pool:
    def __init__(self):
        self.runs = asyncio.Event()

    async def run(self, _):
        self.runs.set()


@pytest.mark.parametrize("lists", [True, False])
async def test_work_begins_when_gpunodes_are_listed_or_after_a_timeout(monkeypatch, lists):
    monkeypatch.setattr(service, "GPUNODES_SECONDS", 30 if lists else 0.01)
    pool, gpunodes = Pool(), SimpleNamespace(synced=asyncio.Event())
    work = asyncio.create_task(service._work(pool, asyncio.sleep(0), [], gpunodes, 1))
    for _ in range(10 if lists else 0):
        await asyncio.sleep(0)
        assert not pool.runs.is_set()
    if lists:
        gpunodes.synced.set()
    await asyncio.wait_for(work, timeout=20)
    assert pool.runs.is_set()
