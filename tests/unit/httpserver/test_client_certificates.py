# SPDX-License-Identifier: Apache-2.0
"""Real handshakes; the API server publishes by which CA it knows clients."""

import asyncio
import contextlib
import datetime as dt
import ssl

import httpx
import pytest
import uvloop
from client_ca import HOUR, ClientCa, presenting
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from listening import listening
from self_signed import self_signed

from gpupack_httpserver import client_certificates
from gpupack_httpserver.access import Access, Caller
from gpupack_httpserver.certificate import ServerFiles
from gpupack_httpserver.client_certificates import ClientCertificates, PeerCertificate
from gpupack_httpserver.connections import certificate_of
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.peer_limits import ConnectionLimits
from gpupack_httpserver.server import Server, configured

CA = ClientCa()


@pytest.fixture
def files(tmp_path):
    return ServerFiles(*map(str, self_signed(tmp_path)))


@pytest.fixture
def certificates(api, files):
    """Client certificates of the cluster whose client CA is CA."""
    made = ClientCertificates(api, files)
    made.trust(CA.pem)
    return made


@pytest.fixture
def shown(certificates):
    """As a connection that is open now has it."""

    def show(certificate):
        return PeerCertificate(certificate.public_bytes(Encoding.DER), certificates.context)

    return show


async def show_certificate(scope, receive, send):
    """Answer with the client certificate of the call in PEM, or with "none"."""
    found = certificate_of(scope)
    name = ssl.DER_cert_to_PEM_cert(found.der) if found else "none"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": name.encode()})


@contextlib.asynccontextmanager
async def served(certificates):
    config = configured(show_certificate, host="", port=0)
    server = Server(config, ConnectionLimits(), tls=lambda: certificates.context)
    async with listening(server) as port:
        yield f"https://localhost:{port}/"


async def asked(url, files, shown=None, **headers):
    verify = presenting(files.chain, shown)
    async with httpx.AsyncClient(verify=verify, trust_env=False) as client:
        return (await client.get(url, headers=headers)).text


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_call_tells_the_certificate_that_its_caller_showed(files, tmp_path, loop):
    async def scenario():
        certificates = ClientCertificates(None, files)
        certificates.trust(CA.pem)
        mine = CA.written(tmp_path / "mine", "alice")
        async with served(certificates) as url:
            assert await asked(url, files, mine) == mine[0].read_text()
            assert await asked(url, files) == "none"

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


async def test_no_header_is_taken_for_a_certificate(certificates, files, tmp_path):
    pem = CA.written(tmp_path / "mine", "alice")[0].read_text().replace("\n", "")
    forged = {
        "X-Remote-User": "alice",
        "X-Remote-Group": "system:masters",
        "X-Forwarded-Client-Cert": pem,
        "X-SSL-Client-Cert": pem,
        "SSL-Client-Verify": "SUCCESS",
    }
    async with served(certificates) as url:
        assert await asked(url, files, **forged) == "none"


async def test_no_header_is_taken_for_an_address(certificates, files):
    """A call through a port-forward comes from loopback, which uvicorn takes for a proxy."""

    async def address(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["client"][0].encode()})

    config = configured(address, host="", port=0)
    server = Server(config, ConnectionLimits(), tls=lambda: certificates.context)
    async with listening(server) as port:
        url = f"https://localhost:{port}/"
        answer = await asked(url, files, **{"X-Forwarded-For": "10.9.9.9"})
    assert answer in {"127.0.0.1", "::1"}


@pytest.mark.parametrize(
    ("authority", "how"),
    [
        (ClientCa(), {}),
        (CA, {"lasts": -HOUR}),
        (CA, {"usage": ExtendedKeyUsageOID.SERVER_AUTH}),
    ],
    ids=["of another CA of the same name", "that has ended", "of a server"],
)
async def test_a_certificate_that_is_not_good_ends_the_handshake(
    certificates, files, tmp_path, authority, how
):
    other = authority.written(tmp_path / "other", "alice", **how)
    async with served(certificates) as url:
        with pytest.raises(httpx.NetworkError):
            await asked(url, files, other)
        assert await asked(url, files) == "none"


async def test_an_intermediate_ca_is_accepted_without_its_root(certificates, files, tmp_path):
    between = ClientCa("between", above=CA)
    certificates.trust(between.pem)
    mine = between.written(tmp_path / "mine", "alice")
    async with served(certificates) as url:
        assert await asked(url, files, mine) == mine[0].read_text()
        with pytest.raises(httpx.NetworkError):
            await asked(url, files, CA.written(tmp_path / "root", "alice"))


@pytest.mark.parametrize("authority", ["", "nothing that is a certificate"])
async def test_without_a_ca_no_certificate_is_requested(api, files, tmp_path, authority):
    certificates = ClientCertificates(api, files)
    certificates.trust(authority)
    async with served(certificates) as url:
        assert await asked(url, files, CA.written(tmp_path / "mine", "alice")) == "none"


async def test_no_session_is_resumed_and_none_is_of_an_older_tls(certificates, files, tmp_path):
    context = presenting(files.chain, CA.written(tmp_path / "mine", "alice"))
    async with served(certificates) as url:
        port = httpx.URL(url).port
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await reader.read()
        tls = writer.get_extra_info("ssl_object")
        assert (tls.version(), tls.session.has_ticket) == ("TLSv1.3", False)
        writer.close()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError, match=r".*"):
            await asyncio.open_connection("localhost", port, ssl=context)


def test_the_common_name_is_the_user_and_organizations_are_the_groups(certificates, shown):
    user = certificates.user(shown(CA.signed("alice", "team-a", "system:masters")[0]))
    assert user.username == "alice"
    assert user.groups == ("team-a", "system:masters", "system:authenticated")
    (identifier,) = user.extra["authentication.kubernetes.io/credential-id"]
    assert identifier.startswith("X509SHA256=")


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("alice", ("system:authenticated",)),
        ("alice", ("system:unauthenticated",)),
        ("system:anonymous", ("team-a",)),
    ],
)
def test_only_certificates_that_the_api_server_accepts_authenticate(
    certificates, shown, name, groups
):
    assert certificates.user(shown(CA.signed(name, *groups)[0])).groups == groups


def test_a_certificate_without_a_common_name_is_refused(certificates, shown):
    with pytest.raises(Denied, match="no common name"):
        certificates.user(shown(CA.signed("", "system:masters")[0]))


def test_a_certificate_ends_on_a_connection_that_is_open(api, files):
    later = dt.datetime.now(dt.UTC) + 2 * HOUR
    certificates = ClientCertificates(api, files, now=lambda: later)
    certificates.trust(CA.pem)
    der = CA.signed("alice")[0].public_bytes(Encoding.DER)
    with pytest.raises(Denied, match=r"is good from .* get another") as denied:
        certificates.user(PeerCertificate(der, certificates.context))
    assert denied.value.status == 401


@pytest.mark.parametrize("after", ["", ClientCa().pem], ids=["none", "another"])
def test_a_certificate_shown_before_the_ca_changed_does_not_count(certificates, shown, after):
    before = shown(CA.signed("alice")[0])
    assert certificates.user(before)
    certificates.trust(after)
    with pytest.raises(Denied, match="connect again"):
        certificates.user(before)


def test_a_ca_may_have_remarks_in_any_script(certificates, shown):
    other = ClientCa()
    certificates.trust(f"# Zürich, 東京\n{CA.pem}\n# ±\n{other.pem}")
    assert certificates.context.cert_store_stats()["x509_ca"] == 2
    assert certificates.user(shown(other.signed("alice")[0])).username == "alice"


def test_a_ca_that_cannot_be_read_changes_nothing(certificates, shown, caplog):
    before = shown(CA.signed("alice")[0])
    certificates.trust("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert certificates.user(before).username == "alice"
    assert "kube-system/extension-apiserver-authentication: client-ca-file" in caplog.text


def test_a_certificate_with_too_long_names_is_refused(certificates, shown):
    groups = [f"{number:060}" for number in range(300)]
    with pytest.raises(Denied, match="more than 16384 bytes"):
        certificates.user(shown(CA.signed("alice", *groups)[0]))


def test_invalid_certificate_bytes_are_refused(certificates):
    with pytest.raises(Denied, match="cannot be read"):
        certificates.user(PeerCertificate(b"none", certificates.context))


async def test_the_configmap_is_followed(server, api, files, monkeypatch):
    monkeypatch.setattr(client_certificates, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(client_certificates, "AGAIN_SECONDS", 0.01)
    certificates = ClientCertificates(api, files)

    async def until(condition):
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)

    def takes_any():
        return certificates.context.verify_mode is ssl.CERT_OPTIONAL

    following = asyncio.create_task(certificates.run())
    server.client_ca = CA.pem
    await until(takes_any)
    server.config_maps_fail, read = True, server.config_map_reads
    await until(lambda: server.config_map_reads > read + 2)
    assert takes_any()
    server.client_ca, server.config_maps_fail = None, False
    await until(lambda: not takes_any())
    following.cancel()


async def test_a_token_goes_before_a_certificate(server, api, certificates, shown):
    access = Access(api, clock=lambda: 0.0, certificates=certificates)
    mine = shown(CA.signed("alice")[0])
    both = Caller("Bearer operator-token", "10.0.0.1", mine)
    assert (await access.known(both, audience="")).username == "operator"
    assert (await access.known(Caller("", "10.0.0.1", mine), audience="")).username == "alice"
    with pytest.raises(Denied, match="the token is not valid"):
        await access.known(Caller("Bearer forged", "10.0.0.1", mine), audience="")


async def test_a_certificate_has_no_audience(api, certificates, shown):
    access = Access(api, clock=lambda: 0.0, certificates=certificates)
    with pytest.raises(Denied, match="send a bearer token"):
        await access.known(
            Caller("", "10.0.0.1", shown(CA.signed("alice")[0])), audience="gpupack-extender"
        )


async def test_without_client_certificates_a_caller_needs_a_token(api, shown):
    access = Access(api, clock=lambda: 0.0)
    with pytest.raises(Denied, match="send a bearer token"):
        await access.known(Caller("", "10.0.0.1", shown(CA.signed("alice")[0])), audience="")
