# SPDX-License-Identifier: Apache-2.0
"""`gpupack doctor` compares served certificates with Secrets; a script replaces kubectl."""

import asyncio
import base64
import contextlib
import datetime as dt
import re
import ssl

import pytest
from aiohttp import web
from fake_api import connected
from self_signed import HOUR, self_signed

from gpupack.cluster.release import Release
from gpupack_cli.doctor.cluster_state import ClusterState, Read, ServedCertificate
from gpupack_cli.doctor.finding import Level
from gpupack_cli.doctor.renewals import renewals
from gpupack_cli.doctor.served import MAX_PODS_OF_PART, read_served
from gpupack_cli.session import Session

NOW = dt.datetime.now(dt.UTC)
FORWARDS = """#!/bin/sh
echo "$@" >>"$FOUND"
echo "Forwarding from 127.0.0.1:$PORT -> 8444"
exec sleep 60
"""


def pod(name, component="api", *, port="https", volume="tls", phase="Running"):
    items = [{"key": "tls.crt", "path": "tls.crt"}, {"key": "tls.key", "path": "tls.key"}]
    return {
        "metadata": {
            "name": name,
            "namespace": "system",
            "labels": {"app.kubernetes.io/component": component},
        },
        "spec": {
            "containers": [{"name": "c", "ports": [{"name": port, "containerPort": 8444}]}],
            "volumes": [
                {"name": volume, "secret": {"secretName": "mine", "items": items}},
                {"name": "ca", "secret": {"secretName": "o", "items": [{"key": "ca.crt"}]}},
                {"name": "config", "configMap": {"name": "c"}},
            ],
        },
        "status": {"phase": phase},
    }


@contextlib.asynccontextmanager
async def cluster(pods, certificate):
    """Return an API server with these pods and a Secret with this certificate."""

    async def listed(request):
        assert request.query["labelSelector"] == "app.kubernetes.io/name=gpupack"
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": pods})

    async def secret(request):
        assert request.match_info["name"] == "mine"
        data = {"tls.crt": base64.b64encode(certificate.read_bytes()).decode()}
        return web.json_response({"metadata": {"name": "mine"}, "data": data})

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/system/pods", listed)
    app.router.add_get("/api/v1/namespaces/system/secrets/{name}", secret)
    async with connected(app) as (api, _):
        yield api


@contextlib.asynccontextmanager
async def serving(files):
    """Serve a certificate like a pod; yield the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    runner = web.AppRunner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.fixture
def folders(tmp_path):
    """Return the files of a Secret, and those that a pod serves."""

    def made(name, **how):
        folder = tmp_path / name
        folder.mkdir()
        return self_signed(folder, **how)

    return made


@pytest.fixture
def asked(tmp_path):
    """Return the served certificates of these pods."""

    async def ask(pods, held, shown):
        kubectl = tmp_path / "kubectl"
        kubectl.write_text(FORWARDS)
        kubectl.chmod(0o755)
        async with cluster(pods, held[0]) as api, serving(shown) as port:
            found = str(tmp_path / "found")
            variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "FOUND": found, "PORT": str(port)}
            return await read_served(Session(environ=variables), api, "system")

    return ask


def findings(read, now=NOW):
    return list(
        renewals(ClusterState(now=now, version="1", release=Release("system"), served=read))
    )


async def test_a_pod_that_serves_its_secret_is_ok(asked, folders, tmp_path):
    files = folders("one")
    read = await asked(
        [pod("api-1"), pod("op-1", "operator", port="metrics", volume="metrics-tls")], files, files
    )
    assert [each.error for each in read.items] == ["", ""]
    (found,) = findings(read)
    assert (found.level, found.message[:14]) == (Level.OK, "2 pods checked")
    forwarded = (tmp_path / "found").read_text().splitlines()
    assert "--namespace=system port-forward pod/api-1 :8444" in forwarded


async def test_a_pod_that_serves_another_certificate_is_reported_with_both_dates(asked, folders):
    read = await asked([pod("api-1")], folders("new", lasts=9 * HOUR), folders("old"))
    (found,) = findings(read)
    assert found.level is Level.WARNING
    assert "pod api-1 serves a certificate that expires on" in found.message
    assert "Secret mine has another one" in found.message
    (found,) = findings(read, NOW + 2 * HOUR)
    assert found.level is Level.FAILED


async def test_certificates_that_expire_on_the_same_day_have_their_times(folders):
    held, served = (
        ssl.PEM_cert_to_DER_cert(folders(name, lasts=lasts)[0].read_text())
        for name, lasts in (("new", 2 * HOUR), ("old", HOUR))
    )
    read = Read((ServedCertificate("api-1", "mine", in_secret=held, in_handshake=served),))
    (found,) = findings(read)
    ends = re.findall(r"expires on (\S+(?: at \S+)?)", found.message.replace(",", ""))
    assert ends[0] != ends[1]


async def test_a_pod_that_ends_the_handshake_is_not_checked_and_the_port_is_named(
    folders, tmp_path
):
    async def end(_, writer):
        writer.transport.abort()

    kubectl = tmp_path / "kubectl"
    kubectl.write_text(FORWARDS)
    kubectl.chmod(0o755)
    async with (
        cluster([pod("api-1")], folders("one")[0]) as api,
        await asyncio.start_server(end, "127.0.0.1", 0) as server,
    ):
        variables = {
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "FOUND": str(tmp_path / "found"),
            "PORT": str(server.sockets[0].getsockname()[1]),
        }
        read = await read_served(Session(environ=variables), api, "system")
    assert read.items[0].error.startswith("no TLS handshake at port 8444")


async def test_an_expired_certificate_in_pod_and_secret_is_a_failure(asked, folders):
    files = folders("one")
    read = await asked([pod("api-1")], files, files)
    assert findings(read, NOW + 2 * HOUR)[0].level is Level.FAILED


async def test_only_a_few_running_agents_are_checked(asked, folders):
    files = folders("one")
    agents = [pod(f"agent-{number}", "agent") for number in range(9)]
    read = await asked([pod("api-1", phase="Pending"), *agents], files, files)
    assert [each.pod for each in read.items] == [f"agent-{n}" for n in range(MAX_PODS_OF_PART)]


async def test_a_pod_without_a_port_or_certificate_serves_none(asked, folders):
    files = folders("one")
    read = await asked([pod("api-1", port="other"), pod("mps-1", "mps", volume="x")], files, files)
    assert [each.pod for each in read.items] == ["mps-1"]


def test_pods_that_could_not_be_checked_are_one_line():
    why = "secrets is forbidden: bob cannot get resource"
    read = Read(tuple(ServedCertificate(f"api-{n}", "mine", error=why) for n in range(3)))
    (found,) = findings(read)
    assert (found.level, found.message) == (
        Level.SKIPPED,
        f"3 pods were not checked, such as api-0: {why}",
    )
    (found,) = findings(Read(refused="bob cannot list pods"))
    assert (found.level, found.message) == (Level.SKIPPED, "bob cannot list pods")
