# SPDX-License-Identifier: Apache-2.0
"""`top` while the certificate of the REST API, and the file of its CA, are replaced."""

import ssl

import pytest
from aiohttp import web
from fake_api import serving
from self_signed import self_signed

from gpupack_cli.commands.top import Nodes
from gpupack_cli.errors import ConfigurationInvalid, RestUnavailable
from gpupack_cli.live_view import Connection
from gpupack_cli.session import Session

STATUS = {
    "utilization": {"gpu_utilization": 0.0, "gpu_memory_usage": 0.0},
    "total_nodes": 0,
    "available_nodes": [],
    "total_gpus": 0,
    "available_gpus": 0,
    "timestamp": "2026-11-29T00:00:00Z",
}


def rest_api():
    """Serve the REST API of a cluster without nodes; each call opens a connection."""

    async def answer(request):
        body = {"nodes": [], "next": ""} if request.path.endswith("/nodes") else STATUS
        return web.json_response(body, headers={"Connection": "close"})

    app = web.Application()
    app.router.add_get("/api/v1/gpu/{path:.*}", answer)
    return app


@pytest.fixture
def certificates(tmp_path):
    """Return two certificates, in separate folders."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    return {name: self_signed(tmp_path / name) for name in ("old", "new")}


async def test_a_replaced_ca_file_is_used_for_the_next_read(server, certificates, tmp_path):
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(certificates["old"][0].read_bytes())
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificates["old"])
    async with serving(rest_api(), tls=tls) as address:
        session = Session(environ={}, server=address, certificate=str(trusted))
        connection = Connection(Nodes(session, server.api).opened)
        assert (await connection.read())[0] == []
        tls.load_cert_chain(*certificates["new"])
        with pytest.raises(RestUnavailable, match="--ca"):
            await connection.read()
        await connection.close()
        for unfinished in ("", "-----BEGIN"):
            trusted.write_text(unfinished)
            with pytest.raises(RestUnavailable, match="is not a CA certificate"):
                await connection.read()
            await connection.close()
        trusted.write_bytes(certificates["new"][0].read_bytes())
        assert (await connection.read())[0] == []
        await connection.close()


async def test_an_empty_ca_file_ends_the_command_before_the_first_read(server, tmp_path):
    (tmp_path / "ca.crt").write_text("")
    session = Session(environ={}, server="https://x:1", certificate=str(tmp_path / "ca.crt"))
    connection = Connection(Nodes(session, server.api).opened)
    with pytest.raises(ConfigurationInvalid, match="is not a CA certificate"):
        await connection.read()
