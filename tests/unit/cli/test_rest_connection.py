# SPDX-License-Identifier: Apache-2.0
"""Credentials of REST API calls, over TLS and with the port for client certificates."""

import asyncio
import contextlib
import ssl

import msgspec
import pytest
from client_ca import ClientCa
from self_signed import self_signed

from gpupack_cli.errors import Unauthenticated
from gpupack_cli.rest_connection import connect
from gpupack_cli.session import Session
from gpupack_kubeclient.identity import Identity
from gpupack_kubeclient.kubeconfig.presented import Presented

CA = ClientCa()
TOKEN = {"GPUPACK_TOKEN": "of-the-environment"}
KUBECTL = """#!/bin/sh
[ "$1" = --namespace=gpu-tools ] || exit 1
for each in "$@"; do last=$each; done
echo "Forwarding from 127.0.0.1:$(cat "$PORTS/${last#:}") -> 8444"
exec sleep 60
"""


class Kube:
    """An API server that publishes a release; `next` are other credentials."""

    def __init__(self, presented, acts_as="", next_ones=()):
        self._presented, self._next, self._acts_as = presented, list(next_ones), acts_as

    async def identity(self):
        return Identity(presented=self._presented, acts_as=self._acts_as)

    async def renew(self, used):
        assert used == self._presented
        if self._next:
            self._presented = self._next.pop(0)
            return True
        return False

    async def page(self, resource, **_):
        return None, [msgspec.convert({"data": {"namespace": "gpu-tools"}}, resource.type)]


@pytest.fixture
async def servers(tmp_path):
    """Serve the two ports of the Service; yield the received calls: port, name, header."""
    came, files = [], self_signed(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        for port, verify in (("443", ssl.CERT_NONE), ("8443", ssl.CERT_OPTIONAL)):
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=CA.pem)
            context.verify_mode = verify
            context.load_cert_chain(*files)
            answer = _answering(port, came, refused={"of-yesterday"})
            server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
            await stack.enter_async_context(server)
            (tmp_path / port).write_text(str(server.sockets[0].getsockname()[1]))
        yield came


def _answering(port, came, refused):
    async def answer(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        shown = writer.get_extra_info("peercert") or {}
        names = [value for part in shown.get("subject", ()) for _, value in part]
        sent = [line for line in head.splitlines() if line.lower().startswith("authorization")]
        came.append((port, names, sent))
        body = b'{"status":"ok"}'
        known = not any(each in line for each in refused for line in sent)
        status = "200 OK" if known else "401 Unauthorized"
        length = f"Content-Length: {len(body)}"
        writer.write(f"HTTP/1.1 {status}\r\n{length}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    return answer


@pytest.fixture
def asked(servers, tmp_path):
    """Return a function that reads the server's health; it returns the received calls."""
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)

    async def ask(presented, *, kube=None, **environ):
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PORTS": str(tmp_path)}
        session = Session(environ=path | environ, certificate=str(tmp_path / "tls.crt"))
        async with connect(session, kube or Kube(presented)) as rest:
            await rest.get_bytes("health")
        return servers[0] if len(servers) == 1 else servers

    return ask


@pytest.fixture
def of_alice(tmp_path):
    certificate, key = CA.written(tmp_path / "alice", "alice")
    return {"certificate": certificate.read_bytes(), "key": key.read_bytes()}


async def test_a_caller_with_only_a_certificate_presents_it(asked, of_alice):
    assert await asked(Presented(**of_alice)) == ("8443", ["alice"], [])


async def test_a_caller_with_a_token_sends_it(asked):
    sent = ["Authorization: Bearer of-the-kubeconfig"]
    assert await asked(Presented(authorization="Bearer of-the-kubeconfig")) == ("443", [], sent)


@pytest.mark.parametrize("authorization", ["", "Bearer of-the-kubeconfig"])
async def test_a_token_of_the_environment_has_precedence(asked, of_alice, authorization):
    sent = ["Authorization: Bearer of-the-environment"]
    presented = Presented(authorization=authorization, **of_alice)
    assert await asked(presented, **TOKEN) == ("443", [], sent)


async def test_a_rejected_token_is_renewed_once(asked):
    old, new = (Presented(authorization=f"Bearer of-{day}") for day in ("yesterday", "today"))
    calls = await asked(old, kube=Kube(old, next_ones=[new]))
    assert [sent for _, _, sent in calls] == [
        ["Authorization: Bearer of-yesterday"],
        ["Authorization: Bearer of-today"],
    ]


async def test_impersonation_is_refused_without_a_token_of_that_user(asked):
    kube = Kube(Presented(authorization="Bearer of-an-administrator"), acts_as="ann")
    with pytest.raises(Unauthenticated, match=r"impersonates 'ann' \(as\).*GPUPACK_TOKEN"):
        await asked(None, kube=kube)
    sent = ["Authorization: Bearer of-the-environment"]
    assert await asked(None, kube=kube, **TOKEN) == ("443", [], sent)
