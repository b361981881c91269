# SPDX-License-Identifier: Apache-2.0
"""The port where operator and agent show what they count."""

import socket
import types

import aiohttp
import prometheus_client
import pytest

from gpupack_kube import metrics


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def watches():
    return {"pods": types.SimpleNamespace(unreadable=3)}


async def answer(port, path="/metrics", method="GET"):
    url = f"http://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession() as http, http.request(method, url) as response:
        return response.status, await response.text()


async def test_what_could_not_be_read_is_counted_by_kind(watches, port):
    async with metrics.shown(watches, port=port):
        assert (await answer(port))[1].splitlines()[-1] == (
            'gpupack_unreadable_objects_total{kind="pods"} 3.0'
        )
        watches["jobs"] = types.SimpleNamespace(unreadable=1)
        assert 'gpupack_unreadable_objects_total{kind="jobs"} 1.0' in (await answer(port))[1]


async def test_one_address_alone_of_loopback_answers(watches, port):
    async with metrics.shown(watches, port=port):
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port)):
            pass


async def test_without_a_port_nobody_listens(watches, monkeypatch):
    def listens(*_, **__):
        raise AssertionError("a port was opened")

    monkeypatch.setattr(prometheus_client, "start_http_server", listens)
    async with metrics.shown(watches, port=0):
        pass


async def test_the_port_is_free_when_the_part_ends(watches, port):
    for _ in range(2):
        async with metrics.shown(watches, port=port):
            await answer(port)


async def test_a_port_that_is_taken_is_an_error(watches, port):
    async with metrics.shown(watches, port=port):
        with pytest.raises(OSError, match="in use"):
            async with metrics.shown(watches, port=port):
                pass
