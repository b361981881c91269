# SPDX-License-Identifier: Apache-2.0
import contextlib
import ssl
import types

import pytest
from aiohttp import web
from self_signed import self_signed

from gpupack_kubeclient import transport
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.environment import SettingsInvalid
from gpupack_kubeclient.errors import KubeError, NotSignedIn
from gpupack_kubeclient.kubeconfig import credentials
from gpupack_kubeclient.kubeconfig.presented import NOTHING, NoCredentials
from gpupack_kubeclient.resources import LEASES


@pytest.fixture
def account(tmp_path):
    """Write the files of a service account and the key of the server."""
    certificate, _ = self_signed(tmp_path)
    certificate.rename(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("first\n")
    return tmp_path


@contextlib.asynccontextmanager
async def in_cluster(account, handler):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(account / "ca.crt", account / "tls.key")
    try:
        await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
        environ = {
            "KUBERNETES_SERVICE_HOST": "localhost",
            "KUBERNETES_SERVICE_PORT": str(runner.addresses[0][1]),
        }
        async with transport.connect(environ, account=account) as sender:
            yield Api(sender)
    finally:
        await runner.cleanup()


async def the_token(request):
    return web.json_response({"metadata": {"name": request.headers["Authorization"]}})


async def test_in_a_cluster_the_service_accounts_token_is_sent(account):
    async with in_cluster(account, the_token) as api:
        assert (await api.get(LEASES, "a", namespace="n")).metadata.name == "Bearer first"


async def test_a_token_that_the_kubelet_replaces_is_read_again(account, monkeypatch):
    monkeypatch.setattr(credentials, "FILE_SECONDS", 0.0)
    async with in_cluster(account, the_token) as api:
        (account / "token").write_text("second")
        assert (await api.get(LEASES, "a", namespace="n")).metadata.name == "Bearer second"


async def test_an_old_token_stays_in_use_while_the_new_one_cannot_be_read(account, monkeypatch):
    monkeypatch.setattr(credentials, "FILE_SECONDS", 0.0)
    async with in_cluster(account, the_token) as api:
        (account / "token").unlink()
        assert (await api.get(LEASES, "a", namespace="n")).metadata.name == "Bearer first"


async def test_calls_for_a_user_carry_only_the_token_of_that_user(account, monkeypatch):
    monkeypatch.setattr(credentials, "FILE_SECONDS", 0.0)
    async with in_cluster(account, the_token) as api:
        his = api.on_behalf("Bearer his")
        assert (await his.get(LEASES, "a", namespace="n")).metadata.name == "Bearer his"
        assert (await api.get(LEASES, "a", namespace="n")).metadata.name == "Bearer first"


async def test_without_the_header_no_user_is_impersonated(account):
    async with in_cluster(account, the_token) as api:
        with pytest.raises(KubeError, match="names no user"):
            api.on_behalf("")


async def test_written_objects_arrive_as_json(account):
    async def handler(request):
        body = await request.json()
        return web.json_response({"metadata": {"name": body["spec"]["holderIdentity"]}})

    async with in_cluster(account, handler) as api:
        written = await api.replace(LEASES, "a", {"spec": {"holderIdentity": "me"}}, namespace="n")
    assert written.metadata.name == "me"


@pytest.mark.parametrize(("lacks", "says"), [("token", "token"), ("ca.crt", r"ca\.crt")])
async def test_the_error_names_the_missing_service_account_file(account, lacks, says):
    (account / lacks).unlink()
    with pytest.raises(SettingsInvalid, match=says):
        async with in_cluster_client(account):
            pass


async def test_an_empty_token_is_no_token(account):
    (account / "token").write_text("\n")
    with pytest.raises(SettingsInvalid, match="is empty"):
        async with in_cluster_client(account):
            pass


def in_cluster_client(account):
    return transport.connect({"KUBERNETES_SERVICE_HOST": "::1"}, account=account)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no such file"),
        ("", "it is empty"),
        ("kind: GPUJob", "is not a kubeconfig: it has no clusters, users or contexts"),
        ("just words", "it holds no fields"),
        ("- a\n- b", "it holds no fields"),
        ("current-context: x", "there is no context 'x'"),
        ("a: [", "it is no YAML"),
        ("users: 5", "Expected `array"),
    ],
)
async def test_the_error_for_an_invalid_kubeconfig_has_no_internal_names(content, says, tmp_path):
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsInvalid, match=says) as raised:
        async with transport.connect({"KUBECONFIG": str(path)}):
            pass
    assert "NoneType" not in str(raised.value)
    assert str(path) in str(raised.value)


async def test_a_401_is_released_where_there_are_no_other_credentials():
    released = []

    async def refused(*given, **named):
        return types.SimpleNamespace(status=401, release=lambda: released.append(401))

    def renew(used):
        raise NoCredentials("the command failed")

    sender = transport.HttpTransport(
        types.SimpleNamespace(server="http://here", impersonation=()),
        types.SimpleNamespace(kept=lambda: NOTHING, renew=renew),
        types.SimpleNamespace(of=lambda presented: True),
        types.SimpleNamespace(request=refused),
    )
    with pytest.raises(NotSignedIn, match="the command failed"):
        await sender.request("GET", "/", headers={}, body=None, timeout=None)
    assert released == [401]
