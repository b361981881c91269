# SPDX-License-Identifier: Apache-2.0
"""Calls of a server whose certificate is replaced while the client runs."""

import asyncio
import ssl

import pytest
from aiohttp import web
from fake_api import serving
from self_signed import self_signed

from gpupack.cluster.calls import Calls
from gpupack.cluster.endpoint import Endpoint, trusted_by
from gpupack.errors import GpupackError, ServerUnreachable
from gpupack_kubeclient import ca_file
from gpupack_restapi.jobs import Queue


def endpoint_of(where, trusted):
    return Endpoint(lambda: where["address"], trusted, lambda: "t", "", lambda: None, direct=True)


def queue_of(page):
    """Return the calls of a server that answers with this page of the queue."""

    async def answer(_):
        return web.json_response(page)

    app = web.Application()
    app.router.add_get("/api/v1/gpu/queue", answer)
    return app


async def test_a_replaced_ca_file_is_used_for_the_next_call(tmp_path, monkeypatch):
    monkeypatch.setattr(ca_file, "LOOK_SECONDS", 0.0)
    app, where = queue_of({"waiting": [], "total": 0}), {}
    trusted = tmp_path / "ca.crt"
    calls = None
    for folder in ("before", "after"):
        (tmp_path / folder).mkdir()
        certificate, key = self_signed(tmp_path / folder)
        (tmp_path / "new").write_bytes(certificate.read_bytes())
        (tmp_path / "new").replace(trusted)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        async with serving(app, tls=tls) as where["address"]:
            calls = calls or Calls(endpoint_of(where, trusted_by(str(trusted))))
            page = await asyncio.to_thread(calls.get, "queue", Queue)
            assert page.waiting == ()
    calls.close()


async def test_a_page_that_names_itself_as_next_is_an_error():
    app, where = queue_of({"waiting": [], "total": 0, "next": "x"}), {}
    trusted = ssl.create_default_context()
    async with serving(app) as where["address"]:
        calls = Calls(endpoint_of(where, lambda: trusted))
        with pytest.raises(ServerUnreachable, match="names itself as its next page"):
            await asyncio.to_thread(list, calls.pages("queue", Queue))
        calls.close()


async def test_a_call_of_a_closed_manager_says_that_it_is_closed():
    trusted = ssl.create_default_context()
    calls = Calls(endpoint_of({"address": "https://localhost:1"}, lambda: trusted))
    calls.close()
    with pytest.raises(GpupackError, match="this manager is closed; open another one"):
        await asyncio.to_thread(calls.get, "queue", Queue)


async def test_an_untrusted_certificate_is_reported_with_the_variable_that_names_the_ca(tmp_path):
    certificate, key = self_signed(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    trusted = ssl.create_default_context()
    async with serving(queue_of({"waiting": [], "total": 0}), tls=tls) as address:
        calls = Calls(endpoint_of({"address": address}, lambda: trusted))
        with pytest.raises(ServerUnreachable, match=r"name a file with the ca\.crt .*GPUPACK_CA"):
            await asyncio.to_thread(calls.get, "queue", Queue)
        calls.close()
