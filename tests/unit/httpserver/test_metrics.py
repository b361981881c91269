# SPDX-License-Identifier: Apache-2.0
"""/metrics of parts that serve nothing else."""

import asyncio
import socket
import types

import pytest
from fake_api import ApiServer, connected
from scraping import answer, metrics_environ

from gpupack_httpserver import metrics
from gpupack_httpserver.settings import MetricsSettings
from gpupack_kubeclient.environment import Environment, SettingsInvalid
from gpupack_kubeclient.metrics import UnreadableObjects

COUNTED = UnreadableObjects({"pods": types.SimpleNamespace(unreadable=3)})


@pytest.fixture
def environ(tmp_path):
    return metrics_environ(tmp_path)


@pytest.fixture
def settings(environ):
    return MetricsSettings.of(Environment(environ[0]))


@pytest.fixture
def server():
    return ApiServer()


@pytest.fixture
async def api(server):
    async with connected(server.app()) as (connection, _):
        yield connection


@pytest.fixture
async def call(api, settings, tmp_path):
    """Calls a part that shows its metrics."""
    async with metrics.shown([COUNTED], api=api, settings=settings):
        yield lambda **how: answer(settings.port, tmp_path, **how)


async def test_an_authorized_caller_gets_metrics(call):
    status, text = await call()
    assert status == 200
    assert 'gpupack_unreadable_objects_total{kind="pods"} 3.0' in text
    assert 'gpupack_kube_requests_total{answer="2xx"}' in text
    assert "gpupack_certificate_expiry_timestamp_seconds" in text


async def test_unauthenticated_callers_get_no_metrics(call, server):
    assert (await call(token=""))[0] == 401
    status, text = await call(token="forged")
    assert (status, "gpupack_" in text) == (401, False)
    server.down = True
    status, text = await call(token="another")
    assert (status, "gpupack_" in text) == (503, False)


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/", "GET", 404), ("/metrics", "POST", 405)]
)
async def test_the_port_serves_only_metrics(call, path, method, status):
    assert (await call(path=path, method=method))[0] == status


async def test_without_a_port_no_server_listens(api, monkeypatch):
    monkeypatch.setattr(metrics, "_server", None)
    async with metrics.shown([COUNTED], api=api, settings=MetricsSettings()) as serving:
        assert not serving.done()


async def test_the_port_is_free_when_the_part_ends(api, settings, tmp_path):
    for _ in range(2):
        async with metrics.shown([COUNTED], api=api, settings=settings):
            assert (await answer(settings.port, tmp_path))[0] == 200


async def test_a_port_that_is_taken_is_an_error(api, settings):
    with socket.create_server(("", settings.port)), pytest.raises(OSError, match="in use"):
        async with metrics.shown([COUNTED], api=api, settings=settings):
            pass


async def test_a_server_that_fails_ends_its_task(api, settings, monkeypatch):
    async def fails(*_):
        raise RuntimeError("no more sockets")

    monkeypatch.setattr("gpupack_httpserver.listener.Listener._accept", fails)
    async with metrics.shown([COUNTED], api=api, settings=settings) as serving:
        with pytest.raises(metrics.TaskEnded):
            await asyncio.wait_for(serving, 30)


def test_a_port_without_a_certificate_is_refused(environ):
    del environ[0]["GPUPACK_METRICS_TLS_KEY"]
    with pytest.raises(SettingsInvalid, match="GPUPACK_METRICS_TLS_KEY is not set"):
        MetricsSettings.of(Environment(environ[0]))
