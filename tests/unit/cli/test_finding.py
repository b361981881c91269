# SPDX-License-Identifier: Apache-2.0
"""As whom the REST API is called: over TLS, at a port that asks for client certificates."""

import asyncio
import contextlib
import ssl

import msgspec
import pytest
from client_ca import ClientCa
from self_signed import self_signed

from gpupack_cli.errors import NotKnown
from gpupack_cli.finding import found
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
    """Stands for the API server, which publishes a release; `next` are other credentials."""

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
    """Two ports, as the Service has them; yields what came to them: port, name, header."""
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
    """Asks for the server's health as somebody; what came to which port."""
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)

    async def ask(presented, *, kube=None, **environ):
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PORTS": str(tmp_path)}
        session = Session(environ=path | environ, certificate=str(tmp_path / "tls.crt"))
        async with found(session, kube or Kube(presented)) as rest:
            await rest.get_bytes("health")
        return servers[0] if len(servers) == 1 else servers

    return ask


@pytest.fixture
def of_alice(tmp_path):
    certificate, key = CA.written(tmp_path / "alice", "alice")
    return {"certificate": certificate.read_bytes(), "key": key.read_bytes()}


async def test_who_has_a_certificate_alone_shows_it_where_one_is_asked_for(asked, of_alice):
    assert await asked(Presented(**of_alice)) == ("8443", ["alice"], [])


async def test_who_has_a_token_is_known_by_it(asked):
    sent = ["Authorization: Bearer of-the-kubeconfig"]
    assert await asked(Presented(authorization="Bearer of-the-kubeconfig")) == ("443", [], sent)


@pytest.mark.parametrize("authorization", ["", "Bearer of-the-kubeconfig"])
async def test_a_token_of_the_environment_goes_before_both(asked, of_alice, authorization):
    sent = ["Authorization: Bearer of-the-environment"]
    presented = Presented(authorization=authorization, **of_alice)
    assert await asked(presented, **TOKEN) == ("443", [], sent)


async def test_a_token_that_is_not_known_any_more_is_renewed_once(asked):
    old, new = (Presented(authorization=f"Bearer of-{day}") for day in ("yesterday", "today"))
    calls = await asked(old, kube=Kube(old, next_ones=[new]))
    assert [sent for _, _, sent in calls] == [
        ["Authorization: Bearer of-yesterday"],
        ["Authorization: Bearer of-today"],
    ]


async def test_who_acts_as_another_user_is_refused_by_name_without_a_token_of_that_user(asked):
    kube = Kube(Presented(authorization="Bearer of-an-administrator"), acts_as="ann")
    with pytest.raises(NotKnown, match=r"acts as 'ann' \(as\).*GPUPACK_TOKEN"):
        await asked(None, kube=kube)
    sent = ["Authorization: Bearer of-the-environment"]
    assert await asked(None, kube=kube, **TOKEN) == ("443", [], sent)
