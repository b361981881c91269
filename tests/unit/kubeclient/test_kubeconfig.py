# SPDX-License-Identifier: Apache-2.0
"""What of a kubeconfig one request cannot show; the rest is compared with kubectl's requests
(`test_kubeconfig_table`)."""

import asyncio
import contextlib
import json
import ssl
import subprocess
import traceback

import aiohttp
import pytest
from client_ca import ClientCa
from fake_api import kubeconfig
from recording_server import Recording, running
from self_signed import self_signed

from gpupack_kubeclient import transport
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.environment import SettingsInvalid
from gpupack_kubeclient.errors import Forbidden, KubeError, NotSignedIn, Unreachable
from gpupack_kubeclient.kubeconfig import credentials, proxies
from gpupack_kubeclient.resources import LEASES

CA = ClientCa()
KIND = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
COUNTS = """#!/bin/sh
runs=$(($(cat "$0.runs" 2>/dev/null || echo 0) + 1))
echo "$runs" >"$0.runs"
sed "s/RUN/$runs/" "$0.answer"
"""


@pytest.fixture
def server(tmp_path):
    certificate, key = self_signed(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(cadata=CA.pem)
    context.verify_mode = ssl.CERT_OPTIONAL
    with running(Recording(context)) as made:
        yield made


@pytest.fixture
def written(server, tmp_path):
    """Writes a kubeconfig with this user; answers the variables that name it."""

    def write(user):
        cluster = {
            "server": f"https://localhost:{server.port}",
            "certificate-authority": "tls.crt",
        }
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        (tmp_path / "config").write_text(json.dumps(config))
        return {"KUBECONFIG": str(tmp_path / "config"), "HOME": str(tmp_path)}

    return write


@pytest.fixture
def issuing(written, tmp_path):
    """The same with a command that issues `token-1`, `token-2` and so on."""

    def write(**status):
        (tmp_path / "plugin").write_text(COUNTS)
        (tmp_path / "plugin").chmod(0o755)
        answer = json.dumps(KIND | {"status": {"token": "token-RUN"} | status})
        (tmp_path / "plugin.answer").write_text(answer)
        spec = {"apiVersion": KIND["apiVersion"], "interactiveMode": "Never"}
        return written({"exec": spec | {"command": "./plugin"}})

    return write


def tokens(server):
    return [each["authorization"].removeprefix("Bearer ") for each in server.requests]


async def test_a_command_runs_once_while_what_it_issued_is_good(issuing, server):
    async with Api.connect(issuing(expirationTimestamp="2100-01-01T00:00:00Z")) as api:
        for _ in range(3):
            await api.get(LEASES, "a", namespace="n")
    assert tokens(server) == ["token-1"] * 3


async def test_a_command_runs_again_when_what_it_issued_has_ended(issuing, server):
    async with Api.connect(issuing(expirationTimestamp="2020-01-01T00:00:00Z")) as api:
        await api.get(LEASES, "a", namespace="n")
        await api.get(LEASES, "a", namespace="n")
    assert tokens(server) == ["token-1", "token-2"]


async def test_a_rejected_token_is_renewed_once(issuing, server):
    server.answer = lambda request: 200 if "token-2" in request["authorization"] else 401
    async with Api.connect(issuing()) as api:
        await api.get(LEASES, "a", namespace="n")
    assert tokens(server) == ["token-1", "token-2"]
    server.requests.clear()
    server.answer = lambda request: 401
    async with Api.connect(issuing()) as api:
        with pytest.raises(Forbidden):
            await api.get(LEASES, "a", namespace="n")
    assert tokens(server) == ["token-3", "token-4"]


async def test_a_rejected_token_of_the_kubeconfig_is_sent_once(written, server):
    server.answer = lambda request: 401
    async with Api.connect(written({"token": "fixed"})) as api:
        with pytest.raises(Forbidden):
            await api.get(LEASES, "a", namespace="n")
    assert tokens(server) == ["fixed"]


async def test_a_replaced_token_file_is_read_when_the_token_is_rejected(written, server, tmp_path):
    (tmp_path / "token").write_text("old")
    server.answer = lambda request: 200 if "new" in request["authorization"] else 401
    async with Api.connect(written({"tokenFile": "token"})) as api:
        (tmp_path / "token").write_text("new")
        await api.get(LEASES, "a", namespace="n")
    assert tokens(server) == ["old", "new"]


async def test_a_client_certificate_that_was_replaced_is_shown_a_minute_later(
    written, server, tmp_path, monkeypatch
):
    monkeypatch.setattr(credentials, "FILE_SECONDS", 0.0)
    CA.written(tmp_path / "shown", "first")
    user = {"client-certificate": "shown/tls.crt", "client-key": "shown/tls.key"}
    async with Api.connect(written(user)) as api:
        first = (await api.identity()).presented.certificate
        CA.written(tmp_path / "shown", "second")
        await api.get(LEASES, "a", namespace="n")
        assert (await api.identity()).presented.certificate != first


async def test_a_replaced_client_certificate_is_read_when_the_old_one_is_rejected(
    written, server, tmp_path
):
    server.answer = lambda request: 200 if request["certificate"] == "second" else 401
    CA.written(tmp_path / "shown", "first")
    user = {"client-certificate": "shown/tls.crt", "client-key": "shown/tls.key"}
    async with Api.connect(written(user)) as api:
        with pytest.raises(Forbidden):
            await api.get(LEASES, "a", namespace="n")
        CA.written(tmp_path / "shown", "second")
        await api.get(LEASES, "a", namespace="n")
    assert [each["certificate"] for each in server.requests] == ["first", "first", "second"]


async def test_a_client_certificate_whose_key_is_not_replaced_yet_is_not_shown(
    written, server, tmp_path, monkeypatch
):
    monkeypatch.setattr(credentials, "FILE_SECONDS", 0.0)
    CA.written(tmp_path / "shown", "first")
    files = CA.written(tmp_path / "next", "second")
    user = {"client-certificate": "shown/tls.crt", "client-key": "shown/tls.key"}
    async with Api.connect(written(user)) as api:
        for file in files:
            file.rename(tmp_path / "shown" / file.name)
            await api.get(LEASES, "a", namespace="n")
    assert [each["certificate"] for each in server.requests] == ["first", "second"]


async def test_a_command_that_fails_is_named_and_is_no_fault_of_the_server(issuing, tmp_path):
    environ = issuing()
    (tmp_path / "plugin").write_text("#!/bin/sh\nexit 3")
    async with Api.connect(environ) as api:
        with pytest.raises(NotSignedIn, match=r"plugin ended with status 3; run it yourself"):
            await api.get(LEASES, "a", namespace="n")


async def test_a_command_that_fails_is_not_run_with_each_request(issuing, tmp_path):
    environ = issuing()
    (tmp_path / "plugin").write_text('#!/bin/sh\necho >>"$0.runs"\nexit 3')
    async with Api.connect(environ) as api:
        for _ in range(3):
            with pytest.raises(NotSignedIn):
                await api.get(LEASES, "a", namespace="n")
    assert (tmp_path / "plugin.runs").read_text() == "\n"


async def test_no_other_user_is_spoken_for_with_a_certificate_of_our_own(written, tmp_path):
    CA.written(tmp_path / "shown", "ann")
    user = {"client-certificate": "shown/tls.crt", "client-key": "shown/tls.key"}
    async with Api.connect(written(user)) as api:
        with pytest.raises(KubeError, match="has a client certificate"):
            api.on_behalf("Bearer of-another")


async def test_the_impersonated_user_of_a_kubeconfig_is_set_by_no_header(written, server):
    async with Api.connect(written({"token": "own", "as": "ann"})) as api:
        await api.on_behalf("Bearer of-another").get(LEASES, "a", namespace="n")
        assert (await api.identity()).acts_as == "ann"
    (request,) = server.requests
    assert (request["authorization"], request["impersonate"]) == ("Bearer of-another", [])


async def test_every_fault_of_a_context_is_named_at_once(written):
    user = {"token": "a", "username": "b", "as-groups": ["c"]}
    with pytest.raises(SettingsInvalid, match=r"user 'u': token and username.*; user 'u': as-uid"):
        async with transport.connect(written(user)):
            pass


async def test_an_encrypted_key_causes_no_prompt_on_the_terminal(written, tmp_path):
    CA.written(tmp_path / "shown", "ann")
    command = ["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", "tls.key", "-out", "e.key"]
    subprocess.run(  # noqa: ASYNC221 - a moment
        command, cwd=tmp_path / "shown", check=True, capture_output=True
    )
    user = {"client-certificate": "shown/tls.crt", "client-key": "shown/e.key"}
    with pytest.raises(SettingsInvalid, match="client certificate cannot be used"):
        async with transport.connect(written(user)):
            pass


@pytest.mark.parametrize(
    ("excluded", "is_proxied"),
    [
        ("10.0.0.0/8", False),
        ("10.0.0.0/99", True),
        ("10.1.2.3", False),
        ("10.1.2.3:6443", False),
        ("10.1.2.3:443", True),
        ("fd00::/8,10.1.0.0/16", False),
        (" , 10.1.2.4", True),
    ],
)
def test_networks_addresses_and_ports_can_be_left_out_of_a_proxy(excluded, is_proxied):
    environ = {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": excluded}
    expected = "http://proxy:3128" if is_proxied else ""
    assert proxies.proxy_for("https://10.1.2.3:6443", environ) == expected


@pytest.mark.parametrize("proxy", ["socks5://proxy:1080", "http://", "http://proxy:port"])
def test_a_proxy_that_cannot_be_used_is_named(proxy):
    with pytest.raises(proxies.ProxyUnusable, match="HTTPS_PROXY: "):
        proxies.proxy_for("https://far:6443", {"HTTPS_PROXY": proxy})


@pytest.mark.parametrize(
    ("proxy", "shown"),
    [
        ("socks5://user:secret@proxy:1080", "'socks5://proxy:1080'"),
        ("http://user:secret@proxy:port/", "'http://proxy:port'"),
        ("http://user:x/secret@proxy", "'http://proxy'"),
        ("ftp://user:x@secret/@proxy:1:2", "'ftp://proxy:1:2'"),
        ("http://user:secret@[proxy", "'http://[proxy'"),
    ],
)
def test_the_password_of_a_proxy_is_not_shown(proxy, shown):
    with pytest.raises(proxies.ProxyUnusable) as error:
        proxies.proxy_for("https://far:6443", {"HTTPS_PROXY": proxy})
    assert shown in str(error.value)
    assert "secret" not in "".join(traceback.format_exception(error.value))


@contextlib.asynccontextmanager
async def refusing_proxy():
    """A kubeconfig whose proxy has a password and answers 407."""

    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Sign in\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(refuse, "127.0.0.1", 0)
    proxy = f"http://user:secretly@127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    with kubeconfig("https://far:6443", **{"proxy-url": proxy}) as path:
        async with listening:
            yield path


async def test_the_password_of_a_proxy_that_refuses_is_not_shown():
    async with refusing_proxy() as path, Api.connect({"KUBECONFIG": path}) as api:
        with pytest.raises(Unreachable, match=r"the proxy refuses .*: 407 Sign in") as error:
            await api.get(LEASES, "a", namespace="n")
    assert "secretly" not in "".join(traceback.format_exception(error.value))


async def test_the_password_of_a_proxy_is_not_shown_to_a_library_that_sends_itself():
    async with refusing_proxy() as path:
        _, _, made = await transport.signed_in({"KUBECONFIG": path})
        async with made:
            with pytest.raises(aiohttp.ClientHttpProxyError, match="407") as error:
                await made.get("https://far:6443/version")
    shown = "".join(traceback.format_exception(error.value)) + repr(error.value)
    assert "127.0.0.1" in shown
    assert "secretly" not in shown
    assert "Authorization" not in shown
