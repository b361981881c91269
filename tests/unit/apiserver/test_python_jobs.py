# SPDX-License-Identifier: Apache-2.0
"""GPUJobs by the Python API, against a served REST API and an API server on loopback."""

import asyncio

import pytest
from aiohttp import web
from extender_builders import pod
from listening import listening
from self_signed import self_signed

from gpupack import AsyncGPUResourceManager, CallRefused, ConfigInvalid, open_manager
from gpupack_apiserver.app import application
from gpupack_httpserver.server import Server, configured


@pytest.fixture(autouse=True)
def patched(server):
    """Merge the spec."""

    async def patch(request):
        made, body = server.jobs[request.match_info["name"]], await request.json()
        server.patched_by.append(request.headers["authorization"])
        made["spec"] |= body["spec"]
        return web.json_response(made)

    server.patch = patch


@pytest.fixture
async def served(parts, tmp_path):
    """Return the variables of a program that calls the REST API."""
    config = configured(application(parts), host="127.0.0.1", port=0)
    certificate, key = self_signed(tmp_path)
    config.ssl_certfile, config.ssl_keyfile = str(certificate), str(key)
    async with listening(Server(config)) as port:
        yield {
            "GPUPACK_SERVER": f"https://localhost:{port}",
            "GPUPACK_CA": str(certificate),
            "GPUPACK_TOKEN": "tenant-token",
            "GPUPACK_NAMESPACE": "team",
        }


@pytest.fixture
async def jobs(served):
    async with AsyncGPUResourceManager(open_manager(environ=served)) as manager:
        yield manager.jobs


@pytest.fixture
def stored(server):
    """Return a GPUJob that the API server has."""

    def store(name, phase, **spec):
        meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "1"}
        server.jobs[name] = {
            "metadata": meta | {"annotations": {}},
            "spec": {"gpus": 1, **spec},
            "status": {"phase": phase},
        }

    return store


async def test_the_queue_is_of_one_namespace_or_of_all_visible_ones(jobs, job):
    job("train", reason="QueueHead")
    job("other", "elsewhere")
    (row,) = await jobs.queue()
    assert (row.namespace, row.name, row.phase) == ("team", "train", "Pending")
    assert await jobs.queue(all_namespaces=True) == [row]
    with pytest.raises(CallRefused) as refused:
        await jobs.queue(namespace="elsewhere")
    assert refused.value.status == 403


async def test_a_pending_job_is_explained(jobs, job):
    job("train", phase="Failed", reason="X", message="it failed")
    found = await jobs.explain("train")
    assert (found.phase, found.reason, found.message) == ("Failed", "X", "it failed")
    with pytest.raises(CallRefused, match="no pod team/notebook waits"):
        await jobs.explain("pod/notebook")


async def test_a_bound_pod_is_explained_by_its_node(jobs, model):
    model.ledger.pods.upsert(pod("notebook", on="a", namespace="team", phase="Running"))
    found = await jobs.explain("pod/notebook")
    assert (found.phase, found.node) == ("Scheduled", "a")


async def test_a_job_is_suspended_and_resumed_with_the_callers_token(jobs, server, stored):
    stored("train", "Running")
    assert (await jobs.suspend("train")).suspended
    assert server.jobs["train"]["spec"]["suspend"] is True
    assert not (await jobs.resume("train", namespace="team")).suspended
    assert server.patched_by == ["Bearer tenant-token"] * 2


async def test_a_finished_job_can_be_rerun_and_not_suspended(jobs, server, stored):
    stored("train", "Failed")
    with pytest.raises(CallRefused, match="gpupack rerun"):
        await jobs.suspend("train")
    made = await jobs.rerun("train")
    assert made.name.startswith("train-rerun-")
    assert (await jobs.rerun("train", new_name="again")).name == "again"
    assert {"train", made.name, "again"} == set(server.jobs)


@pytest.mark.parametrize("name", ["", "../../status", "a/b", "Train", "a?x=1", 5, None])
async def test_an_invalid_name_is_refused_before_a_request(jobs, name):
    with pytest.raises(ConfigInvalid, match="is not a valid name"):
        await jobs.suspend(name)
    with pytest.raises(ConfigInvalid, match="is not a valid name"):
        await jobs.explain(name)


async def test_a_long_name_is_refused_with_the_maximum(jobs):
    with pytest.raises(ConfigInvalid, match="name: 254 characters; the maximum is 253"):
        await jobs.suspend("a" * 254)


async def test_a_missing_namespace_is_reported(served):
    environ = {name: value for name, value in served.items() if name != "GPUPACK_NAMESPACE"}
    with open_manager(environ=environ) as manager:
        with pytest.raises(ConfigInvalid, match="set GPUPACK_NAMESPACE"):
            manager.jobs.queue()
        rows = await asyncio.to_thread(manager.jobs.queue, all_namespaces=True)
    assert rows == []
