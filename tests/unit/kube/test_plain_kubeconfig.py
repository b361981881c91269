# SPDX-License-Identifier: Apache-2.0
import base64
import os
import ssl
import subprocess
import sys

import pytest
import yaml
from aiohttp import web
from self_signed import self_signed

from gpupack_kube import transport
from gpupack_kube.client import Api
from gpupack_kube.environment import SettingsInvalid
from gpupack_kube.errors import KubeError, Unreachable
from gpupack_kube.plain_kubeconfig import plain
from gpupack_kube.resources import LEASES


@pytest.fixture
def written(tmp_path):
    """Writes a kubeconfig of a server with a certificate of its own; answers its path."""
    certificate, _ = self_signed(tmp_path)

    def write(*, server="https://localhost:1", user=None, cluster=None, context=None, data=True):
        pem = certificate.read_bytes()
        authority = (
            {"certificate-authority-data": base64.b64encode(pem).decode()}
            if data
            else {"certificate-authority": "tls.crt"}
        )
        config = {
            "current-context": "c",
            "contexts": [
                {"name": "c", "context": {"cluster": "k", "user": "u"} | (context or {})},
                {"name": "other", "context": {"cluster": "k", "user": "u", "namespace": "team"}},
            ],
            "clusters": [
                {"name": "k", "cluster": {"server": server} | authority | (cluster or {})}
            ],
            "users": [{"name": "u", "user": {"token": "secret"} if user is None else user}],
        }
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return write


async def served(folder, handler):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(folder / "tls.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
    return runner, f"https://localhost:{runner.addresses[0][1]}"


async def who(request):
    certificate = request.transport.get_extra_info("peercert")
    name = request.headers.get("Authorization", "") or ("a certificate" if certificate else "")
    return web.json_response({"metadata": {"name": name}})


@pytest.mark.parametrize("data", [True, False])
@pytest.mark.parametrize("by", ["token", "certificate"])
async def test_a_server_is_called_by_token_or_certificate(written, tmp_path, by, data):
    runner, address = await served(tmp_path, who)
    user = {"client-certificate": "tls.crt", "client-key": str(tmp_path / "tls.key")}
    try:
        path = written(server=address, user=user if by == "certificate" else None, data=data)
        async with Api.connect({"KUBECONFIG": path}) as api:
            found = await api.get(LEASES, "a", namespace="n")
            identity = await api.identity()
    finally:
        await runner.cleanup()
    expected = "Bearer secret" if by == "token" else "a certificate"
    assert found.metadata.name == expected
    assert bool(identity.certificate) == (by == "certificate")
    assert identity.namespace == "default"


async def test_a_server_of_another_certificate_is_not_talked_to(written, tmp_path):
    runner, address = await served(tmp_path, who)
    (tmp_path / "second").mkdir()
    path = written(server=address)
    other, _ = self_signed(tmp_path / "second")
    text = yaml.safe_load((tmp_path / "config").read_text())
    data = base64.b64encode(other.read_bytes()).decode()
    text["clusters"][0]["cluster"]["certificate-authority-data"] = data
    (tmp_path / "config").write_text(yaml.safe_dump(text))
    try:
        async with Api.connect({"KUBECONFIG": path}) as api:
            with pytest.raises(Unreachable, match="certificate"):
                await api.get(LEASES, "a", namespace="n")
    finally:
        await runner.cleanup()


def test_a_context_is_chosen_by_name(written):
    assert plain(written(), None).namespace == "default"
    assert plain(written(), "other").namespace == "team"
    assert plain(written(), "nosuch") is None


@pytest.mark.parametrize(
    "changed",
    [
        {"user": {"exec": {"command": "aws"}}},
        {"user": {"auth-provider": {"name": "oidc"}}},
        {"user": {"username": "a", "password": "b"}},
        {"user": {"token": "a", "as": "root"}},
        {"user": {"tokenFile": "/token"}},
        {"user": {"client-certificate": "tls.crt"}},
        {"cluster": {"insecure-skip-tls-verify": True}},
        {"cluster": {"proxy-url": "http://proxy"}},
        {"cluster": {"tls-server-name": "other"}},
        {"cluster": {"certificate-authority-data": "!"}},
        {"server": "http://localhost:1"},
    ],
    ids=str,
)
def test_whatever_else_stands_in_one_is_left_to_the_official_client(written, changed):
    assert plain(written(**changed), None) is None


@pytest.mark.parametrize("text", ["", "words", "[1]", "a: [", "contexts: 5", "\x00"])
def test_rubbish_is_left_to_it_too(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    assert plain(str(path), None) is None
    assert plain(f"{path}:{path}", None) is None
    assert plain(str(tmp_path / "nothing"), None) is None


async def test_a_certificate_that_is_none_is_said_to_be_none(written):
    data = base64.b64encode(b"no certificate").decode()
    path = written(user={"client-certificate-data": data, "client-key-data": data})
    with pytest.raises(SettingsInvalid, match="cannot be used"):
        async with transport.connect({"KUBECONFIG": path}):
            pass


async def test_nobody_is_spoken_for_with_a_certificate_of_our_own(written, tmp_path):
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    async with Api.connect({"KUBECONFIG": written(user=user)}) as api:
        with pytest.raises(KubeError, match="has a client certificate"):
            api.on_behalf("Bearer his")
        kept = (await api.identity()).certificate
        assert kept
    # What was written for the connection is gone with it.
    assert not os.path.exists(kept)  # noqa: ASYNC240, PTH110


async def test_nothing_readable_is_told_by_the_files_name(tmp_path):
    with pytest.raises(SettingsInvalid, match=r"nothing.*name one in KUBECONFIG"):
        async with transport.connect({"KUBECONFIG": str(tmp_path / "nothing")}):
            pass


def test_such_a_kubeconfig_does_not_load_the_official_client(written):
    code = (
        "import asyncio, sys\n"
        "from gpupack_kube import transport\n"
        "async def main():\n"
        "    async with transport.connect({'KUBECONFIG': sys.argv[1]}): pass\n"
        "asyncio.run(main())\n"
        "print('kubernetes' in sys.modules)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, written()],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert found.stdout.strip() == "False"
