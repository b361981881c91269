# SPDX-License-Identifier: Apache-2.0
"""Certificates that are renewed while servers run: real files, real handshakes."""

import asyncio
import datetime as dt
import logging
import ssl

import pytest
import uvloop
from client_ca import ClientCa, presenting
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from listening import listening
from prometheus_client import CollectorRegistry
from self_signed import HOUR, self_signed
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gpupack_extender import endpoints
from gpupack_extender.servers import plan_server
from gpupack_extender.settings import Serving
from gpupack_httpserver.certificate import (
    LOOK_SECONDS,
    CertificateMetrics,
    ServedCertificate,
    ServerFiles,
)
from gpupack_httpserver.client_certificates import ClientCertificates, PeerCertificate
from gpupack_httpserver.errors import Denied


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


@pytest.fixture
def files(tmp_path):
    return ServerFiles(*map(str, self_signed(tmp_path)))


@pytest.fixture
def certificate(files, clock):
    return ServedCertificate(files, clock=clock)


def on_disk(folder):
    return x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())


def shown(context):
    """The certificate that a server with this context shows in a handshake."""
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    sides = (
        context.wrap_bio(into := ssl.MemoryBIO(), out := ssl.MemoryBIO(), server_side=True),
        client.wrap_bio(out, into),
    )
    for _ in range(4):
        for side in reversed(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return x509.load_der_x509_certificate(sides[1].getpeercert(binary_form=True))


def metric(certificate, name):
    registry = CollectorRegistry()
    registry.register(CertificateMetrics(certificate))
    return registry.get_sample_value(f"gpupack_certificate_{name}")


def renew_as_the_kubelet_does(folder, **how):
    """All files of a Secret's volume change at once: a link to a folder is replaced."""
    fresh = folder / f"..{len(list(folder.iterdir()))}"
    fresh.mkdir()
    self_signed(fresh, **how)
    (folder / "..data_tmp").symlink_to(fresh.name)
    (folder / "..data_tmp").replace(folder / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).is_symlink():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(f"..data/{name}")


def test_a_renewed_certificate_is_shown_in_the_handshakes_that_follow(certificate, clock, tmp_path):
    old = on_disk(tmp_path)
    renew_as_the_kubelet_does(tmp_path, lasts=2 * HOUR)
    assert shown(certificate.context()) == old
    clock.look()
    assert shown(certificate.context()) == on_disk(tmp_path) != old
    assert metric(certificate, "rejected") == 0
    until = on_disk(tmp_path).not_valid_after_utc.timestamp()
    assert metric(certificate, "expiry_timestamp_seconds") == until


def other_key(folder):
    """A chain and a key that do not belong together."""
    chain = (folder / "tls.crt").read_bytes()
    self_signed(folder)
    (folder / "tls.crt").write_bytes(chain)


BROKEN = {
    "another key": other_key,
    "no certificate": lambda folder: (folder / "tls.crt").write_text("none"),
    "half a file": lambda folder: (folder / "tls.key").write_text("-----BEGIN PRIVATE KEY-----\n"),
    "no file": lambda folder: (folder / "tls.key").unlink(),
    "ended": lambda folder: self_signed(folder, begins=-3 * HOUR, lasts=-2 * HOUR),
    "not yet valid": lambda folder: self_signed(folder, begins=HOUR, lasts=2 * HOUR),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_pair_that_cannot_be_served_leaves_the_last_one_and_is_reported_once(
    certificate, clock, tmp_path, caplog, broken
):
    old = on_disk(tmp_path)
    with caplog.at_level(logging.INFO):
        broken(tmp_path)
        for _ in range(3):
            clock.look()
            assert shown(certificate.context()) == old
        errors = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert len(errors) == 1
        assert str(tmp_path / "tls.crt") in errors[0].getMessage()
        assert metric(certificate, "rejected") == 1
        until = old.not_valid_after_utc.timestamp()
        assert metric(certificate, "expiry_timestamp_seconds") == until

        self_signed(tmp_path)
        clock.look()
        assert shown(certificate.context()) == on_disk(tmp_path) != old
        assert metric(certificate, "rejected") == 0


def test_a_pair_that_becomes_valid_is_served_without_another_change(files, clock, tmp_path):
    times = [dt.datetime.now(dt.UTC)]
    certificate = ServedCertificate(files, clock=clock, now=lambda: times[-1])
    self_signed(tmp_path, begins=HOUR, lasts=3 * HOUR)
    clock.look()
    assert shown(certificate.context()) != on_disk(tmp_path)
    times.append(times[0] + 2 * HOUR)
    clock.look()
    assert shown(certificate.context()) == on_disk(tmp_path)


@pytest.mark.parametrize("broken", [other_key, BROKEN["no file"], BROKEN["no certificate"]])
def test_a_server_does_not_begin_without_a_pair(files, tmp_path, broken):
    broken(tmp_path)
    with pytest.raises((OSError, ValueError)):
        ServedCertificate(files)


def test_a_scrape_alone_brings_a_renewed_certificate(certificate, clock, tmp_path):
    self_signed(tmp_path, lasts=5 * HOUR)
    clock.look()
    left = metric(certificate, "expiry_timestamp_seconds") - dt.datetime.now(dt.UTC).timestamp()
    assert left > 4 * 3600


async def until(reader, ending):
    async with asyncio.timeout(30):
        return await reader.readuntil(ending)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_renewal_drops_no_connection_and_no_call_under_way(
    certificate, clock, files, tmp_path, loop
):
    async def scenario():
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow(_):
            begun.set()
            await go_on.wait()
            return PlainTextResponse("done")

        app = endpoints.application([Route("/slow", slow, methods=["POST"])])
        server = plan_server(app, Serving(), certificate)
        async with listening(server) as port:
            trusted = presenting(files.chain)
            reader, writer = await asyncio.open_connection("localhost", port, ssl=trusted)
            writer.write(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            await asyncio.wait_for(begun.wait(), 30)
            renew_as_the_kubelet_does(tmp_path)
            clock.look()
            fresh = presenting(files.chain)
            _, other = await asyncio.open_connection("localhost", port, ssl=fresh)
            other.close()
            go_on.set()
            assert await until(reader, b"done")
            writer.write(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            assert await until(reader, b"done")
            writer.close()
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection("localhost", port, ssl=trusted)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


@pytest.fixture
def authority():
    return ClientCa()


@pytest.fixture
def clients(files, clock, authority):
    made = ClientCertificates(None, files, clock=clock)
    made.trust(authority.pem)
    return made


def held(clients, authority):
    """As a connection that is open has it."""
    der = authority.signed("alice")[0].public_bytes(Encoding.DER)
    return PeerCertificate(der, clients.context)


def test_a_renewal_leaves_callers_with_client_certificates_connected(
    clients, authority, clock, tmp_path
):
    before = held(clients, authority)
    self_signed(tmp_path)
    clock.look()
    assert held(clients, authority).context is not before.context
    assert shown(clients.context) == on_disk(tmp_path)
    assert clients.user(before).username == "alice"


@pytest.mark.parametrize("broken", [other_key, BROKEN["no file"], BROKEN["half a file"]])
def test_another_client_ca_counts_while_the_pair_is_broken_and_the_old_one_does_not(
    clients, authority, clock, tmp_path, broken
):
    before, served = held(clients, authority), on_disk(tmp_path)
    broken(tmp_path)
    clock.look()
    assert shown(clients.context) == served
    other = ClientCa()
    clients.trust(other.pem)
    with pytest.raises(Denied, match="connect again"):
        clients.user(before)
    assert clients.user(held(clients, other)).username == "alice"
    assert shown(clients.context) == served
    self_signed(tmp_path)
    clock.look()
    assert shown(clients.context) == on_disk(tmp_path) != served
    assert clients.user(held(clients, other)).username == "alice"
