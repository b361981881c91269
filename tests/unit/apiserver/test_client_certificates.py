# SPDX-License-Identifier: Apache-2.0
"""The REST API at its port for client certificates, over TLS."""

import asyncio
import contextlib
import dataclasses
import ssl

import httpx
import pytest
from client_ca import ClientCa, presenting
from listening import listening
from self_signed import self_signed

from gpupack_apiserver.app import application, build
from gpupack_apiserver.rights import Rights
from gpupack_apiserver.settings import CostService, Settings
from gpupack_httpserver.certificate import ServerFiles
from gpupack_httpserver.client_certificates import ClientCertificates
from gpupack_httpserver.peer_limits import ConnectionLimits
from gpupack_httpserver.server import Server, configured
from gpupack_scheduler.decisions import Decisions

CA = ClientCa()
TOKEN = {"Authorization": "Bearer tenant-token"}
JOB = {"workers": 1, "gpus": 1, "workload": {"name": "matmul"}}
NEED_A_TOKEN = [
    ("POST", "allocate", {"gpu_count": 1, "namespace": "team"}),
    ("POST", "allocate", {"gpu_count": 1}),
    ("DELETE", "allocations/team/allocation-1", None),
    ("DELETE", "allocations/others/none", None),
    ("POST", "allocations/team/allocation-1/workload", {"image": "i", "command": ["c"]}),
    ("POST", "what-if", {"namespace": "team", "job": JOB}),
    ("POST", "config/reload", None),
]


@pytest.fixture
def files(tmp_path):
    return ServerFiles(*map(str, self_signed(tmp_path)))


@pytest.fixture
def certificates(files):
    made = ClientCertificates(None, files)
    made.trust(CA.pem)
    return made


@pytest.fixture
def rights(parts, certificates):
    return Rights(parts.api, certificates)


@pytest.fixture
async def address(parts, rights, certificates):
    """Return the address on which the API listens."""
    accountant = CostService("https://localhost:9")
    calls = application(dataclasses.replace(parts, rights=rights), accountant)
    config = configured(calls, host="", port=0)
    server = Server(config, ConnectionLimits(), tls=lambda: certificates.context)
    async with listening(server) as port:
        yield f"https://localhost:{port}/api/v1/gpu/"


@pytest.fixture
def as_user(address, files, tmp_path):
    """Return a client with a certificate for this user and these groups."""

    def client(name, *groups):
        shown = CA.written(tmp_path / name, name, *groups)
        return calling(address, files, shown)

    return client


def calling(address, files, shown=None):
    verify = presenting(files.chain, shown)
    return httpx.AsyncClient(base_url=address, verify=verify, trust_env=False)


async def test_a_caller_with_a_certificate_sees_what_the_api_server_permits(as_user, server, job):
    job("mine")
    job("theirs", namespace="others")
    async with as_user("tenant", "team-a") as client:
        status = await client.get("status")
        assert (status.status_code, status.json()["total_gpus"]) == (200, 8)
        jobs = (await client.get("jobs")).json()["jobs"]
        assert [each["name"] for each in jobs] == ["mine"]
        assert (await client.get("jobs?namespace=others")).status_code == 403
        asked = {"gpu_count": 1}
        assert (await client.post("validate", json=asked)).json()["valid"]
    assert {spec["user"] for spec in server.asked_about} == {"tenant"}
    assert server.asked_about[0]["groups"] == ["team-a", "system:authenticated"]


async def test_a_caller_without_certificate_and_token_is_refused(address, files, job):
    job("mine")
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    async with calling(address, files) as client:
        for path in ("status", "jobs", "nodes"):
            assert (await client.get(path, headers=forged)).status_code == 401


@pytest.mark.parametrize(("method", "path", "body"), NEED_A_TOKEN)
async def test_calls_that_forward_or_write_need_a_token(as_user, server, job, method, path, body):
    job("allocation-1", labels={"gpupack.dev/allocation": "true"})
    server.rights |= {("tenant", "update gpunodes/summary", "")}
    async with as_user("tenant") as client:
        answer = await client.request(method, path, json=body)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"] == "Bearer"
    problem = answer.json()
    assert problem["field"] == "Authorization"
    assert "kubectl create token" in problem["fix"]
    assert (server.created_by, server.deleted_by, server.patched_by) == ([], [], [])
    assert server.tried == []


async def test_with_a_certificate_what_if_accepts_a_checked_job(as_user, server):
    server.rights |= {("tenant", "create gpujobs", "team")}
    question = {"namespace": "team", "job": JOB, "judged": True}
    async with as_user("tenant") as client:
        answer = await client.post("what-if", json=question)
        assert (answer.status_code, answer.json()["outcome"]) == (200, "Starts"), answer.text
        elsewhere = await client.post("what-if", json=question | {"namespace": "others"})
        assert elsewhere.status_code == 403
        assert "may not create gpujobs in namespace others" in elsewhere.text
    assert (server.created_by, server.tried) == ([], [])


async def test_with_a_certificate_what_if_explains_how_to_check_the_job(as_user):
    async with as_user("tenant") as client:
        answer = await client.post("what-if", json={"namespace": "team", "job": JOB})
    assert answer.status_code == 401
    assert "dryRun=All" in answer.json()["detail"]


@pytest.mark.parametrize(
    "spec",
    [
        {"gpus": 0},
        {"gpus": "1"},
        {"workers": 10**9, "gpus": 1},
        {"workers": 1024, "gpus": 64},
        {"gpus": 1, "share": {"percent": 10}},
        {},
        {"gpus": 1, "template": [[[]]]},
        {"share": {"percent": 1000}},
    ],
)
async def test_an_unconfirmed_job_is_checked_by_types_and_limits(as_user, server, spec):
    server.rights |= {("tenant", "create gpujobs", "team")}
    async with as_user("tenant") as client:
        answer = await client.post(
            "what-if", json={"namespace": "team", "job": spec, "judged": True}
        )
    assert (answer.status_code, answer.json().get("field")) == (400, "job"), answer.text


async def test_a_token_is_forwarded_also_with_a_certificate(as_user, server):
    server.on_created = lambda made: made.update(status={"phase": "Failed"})
    async with as_user("other") as client:
        asked = {"gpu_count": 1, "namespace": "team", "seconds": 60}
        made = await client.post("allocate", json=asked, headers=TOKEN, timeout=30)
    assert made.status_code == 201, made.text
    assert server.created_by == ["Bearer tenant-token"]


async def test_a_refused_token_is_refused_also_with_a_certificate(as_user):
    async with as_user("admin") as client:
        for sent in ("Bearer forged", "Basic eA=="):
            refused = await client.get("status", headers={"Authorization": sent})
            assert refused.status_code == 401


async def test_two_certificates_of_a_user_share_one_rate_limit(as_user, rights):
    rights.limit(at_once=3, per_second=0.001)
    async with as_user("tenant", "a") as one, as_user("tenant", "b") as other:
        found = [(await each.get("status")).status_code for each in (one, other) * 2]
    assert found == [200, 200, 200, 429]


async def test_a_connection_ends_when_its_ca_is_removed(as_user, certificates):
    async with as_user("tenant") as client:
        assert (await client.get("status")).status_code == 200
        certificates.trust(ClientCa().pem)
        refused = await client.get("status")
        assert (refused.status_code, refused.headers["connection"]) == (401, "close")
        assert "connect again" in refused.json()["detail"]
        with pytest.raises(httpx.NetworkError):
            await client.get("status")


async def test_a_stream_ends_when_its_certificate_expires(as_user, certificates, monkeypatch):
    monkeypatch.setattr("gpupack_apiserver.events.stream.RECHECK_SECONDS", 0.0)
    async with as_user("tenant") as client, client.stream("GET", "events?full=1") as answer:
        certificates.trust("")
        lines = [line async for line in answer.aiter_lines()]
    assert "event: bye" in lines
    assert any("TokenExpired" in line for line in lines)


async def test_certificates_are_requested_at_a_separate_port(parts, files, tmp_path, server):
    server.client_ca = CA.pem
    settings = Settings(
        decisions=Decisions(), tls_cert=files.chain, tls_key=files.key, certificates_port=1
    )
    app = build(settings, parts.api)
    certificates = app.tasks["client certificates"]
    following = asyncio.create_task(certificates.run())
    async with asyncio.timeout(30):
        while certificates.context.verify_mode is ssl.CERT_NONE:
            await asyncio.sleep(0.01)
    shown = CA.written(tmp_path / "mine", "tenant")
    async with contextlib.AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(listening(each)) for each in app.servers]
        found = []
        for port in ports:
            client = calling(f"https://localhost:{port}/api/v1/gpu/", files, shown)
            async with client:
                answer = await client.get("status")
            found.append((answer.status_code, answer.json()["detail"]))
    following.cancel()
    by_token, by_certificate = found
    assert by_token == (401, "send a bearer token")
    # Its reflectors do not run: callers are authenticated, and the cluster is unknown.
    assert by_certificate[0] == 503


def test_without_that_port_there_is_no_such_server(parts, files):
    settings = Settings(decisions=Decisions(), tls_cert=files.chain, tls_key=files.key)
    app = build(settings, parts.api)
    assert (len(app.servers), "client certificates" in app.tasks) == (1, False)
