# SPDX-License-Identifier: Apache-2.0
"""CA files that are replaced while a client runs: real files, real handshakes."""

import contextlib
import logging
import ssl

import aiohttp
import pytest
from aiohttp import web
from ports import free_port
from self_signed import self_signed

from gpupack_kubeclient import transport
from gpupack_kubeclient.ca_file import LOOK_SECONDS, CaFile
from gpupack_kubeclient.kubeconfig import tls
from gpupack_kubeclient.kubeconfig.presented import Presented


class Clock:
    """Monotonic seconds that a test moves on."""

    seconds = 0.0

    def __call__(self):
        return self.seconds

    def look(self):
        """As long as it takes until the next look."""
        self.seconds += LOOK_SECONDS


@pytest.fixture
def clock():
    return Clock()


@contextlib.asynccontextmanager
async def serving(folder, answer, port=0):
    """A server by the certificate in the folder; yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "localhost", port, ssl_context=context)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def hello(_):
    return web.Response(text="hello")


async def test_a_replaced_ca_is_trusted_and_the_old_one_is_not(tmp_path, clock):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        self_signed(folder)
    trusted_file = tmp_path / "ca.crt"
    trusted_file.write_bytes((old / "tls.crt").read_bytes())
    trusted = CaFile(trusted_file, clock=clock)
    async with (
        serving(old, hello) as before,
        serving(new, hello) as after,
        aiohttp.ClientSession() as http,
    ):

        async def status(port):
            url = f"https://localhost:{port}/"
            async with http.get(url, ssl=trusted.context()) as response:
                return response.status

        assert await status(before) == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await status(after)
        trusted_file.write_bytes((new / "tls.crt").read_bytes())
        clock.look()
        assert await status(after) == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await status(before)


def as_for_a_cluster(authority):
    """A context as for an API server, of which no CAs mean the host's own."""
    return tls.context(authority=authority, insecure=False, server_name="", presented=Presented())


@pytest.fixture(params=[None, as_for_a_cluster], ids=["service", "cluster"])
def make(request):
    return request.param


@pytest.mark.parametrize("text", [None, "", "none", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_file_without_a_certificate_changes_nothing_and_is_reported_once(
    tmp_path, clock, caplog, text, make
):
    path, _ = self_signed(tmp_path)
    trusted = CaFile(path, clock=clock, make=make)
    before = trusted.context()
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    for _ in range(3):
        clock.look()
        assert trusted.context() is before
    assert [each.levelno for each in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("text", ["", "none"])
def test_no_client_begins_with_a_file_that_holds_no_certificate(tmp_path, make, text):
    path = tmp_path / "ca.crt"
    path.write_text(text)
    with pytest.raises(OSError, match="certificate"):
        CaFile(path, make=make)


def test_an_unchanged_ca_file_causes_no_new_connections(tmp_path, clock):
    trusted = CaFile(self_signed(tmp_path)[0], clock=clock)
    before = trusted.context()
    clock.look()
    assert trusted.context() is before


async def test_a_component_follows_the_clusters_ca(tmp_path, monkeypatch):
    """As the kubelet replaces it in the volume of the service account."""
    monkeypatch.setattr("gpupack_kubeclient.ca_file.LOOK_SECONDS", 0.0)
    account, cluster = tmp_path / "account", tmp_path / "cluster"
    for folder in (account, cluster):
        folder.mkdir()
    (account / "token").write_text("token")

    def renew():
        self_signed(cluster)
        (account / "ca.crt").write_bytes((cluster / "tls.crt").read_bytes())

    async def asked(sender):
        timeout = aiohttp.ClientTimeout(total=30)
        async with await sender.request(
            "GET", "/version", headers={}, body=None, timeout=timeout
        ) as response:
            return await response.text()

    renew()
    port = free_port()
    environ = {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": str(port)}
    async with transport.connect(environ, account=account) as sender:
        for _ in range(2):
            async with serving(cluster, hello, port):
                assert await asked(sender) == "hello"
            renew()
