# SPDX-License-Identifier: Apache-2.0
"""Certificates that are issued in the cluster."""

import asyncio
import base64
import contextlib
import datetime as dt
import json
import signal
import ssl
import sys

import pytest
from cryptography import x509
from fake_api import ApiServer, connected, kubeconfig, serving
from processes import environment

from gpupack_operator.certificates import pair
from gpupack_operator.certificates.certificate_requests import (
    CertificateRequest,
    parse_certificate_requests,
)
from gpupack_operator.certificates.renewal import Reason, renew
from gpupack_operator.certificates.service import fill

NOW = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)
NAMESPACE = "gpu-tools"
WANTED = CertificateRequest(
    "gpupack-api-certificate", "gpupack-api", f"gpupack-api.{NAMESPACE}.svc", 90
)
PATH = f"/api/v1/namespaces/{NAMESPACE}/secrets/{WANTED.secret}"


def issued(now=NOW, wanted=WANTED):
    return renew(wanted, {}, now).data


def of(data, key="tls.crt"):
    return x509.load_pem_x509_certificate(base64.b64decode(data[key]))


def empty_secret(version="1"):
    return {"metadata": {"name": WANTED.secret, "namespace": NAMESPACE, "resourceVersion": version}}


def test_an_empty_secret_gets_a_certificate_that_is_then_kept():
    first = renew(WANTED, {}, NOW)
    assert first.reason is Reason.MISSING
    assert renew(WANTED, first.data, NOW) is None


UNKNOWN_KEY = b"""-----BEGIN PRIVATE KEY-----
MEcCAQAwBQYDK2V5BDsEOWLiav4GyVpzpDRNtIHGWvOyL5Lg6MFgMsuQk8W8l9oA
5+6V5jWN2SqIgNk5wPUyctEGiwaJ3S/XvQ==
-----END PRIVATE KEY-----
"""
"""Key of an algorithm that does not exist."""


@pytest.mark.parametrize("name", ["tls.key", "ca.key"])
def test_a_key_of_an_unknown_algorithm_is_ignored(name):
    data = issued() | {name: base64.b64encode(UNKNOWN_KEY).decode()}
    if name == "tls.key":
        assert renew(WANTED, data, NOW).reason is Reason.MISSING
    else:
        assert pair.read_authority(data) is None


def test_strict_clients_accept_the_certificate_for_each_host_name(tmp_path):
    data = issued(dt.datetime.now(dt.UTC))
    for name, text in data.items():
        (tmp_path / name).write_bytes(base64.b64decode(text))
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    for host in (*WANTED.hosts, "127.0.0.1"):
        trusting = ssl.create_default_context(cafile=tmp_path / "ca.crt")
        trusting.verify_flags |= ssl.VERIFY_X509_STRICT
        assert handshake(served, trusting, host)


def handshake(served, trusting, host):
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = served.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(4):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return client.version() and client.getpeercert()


def test_a_certificate_is_issued_for_the_longest_namespace_name():
    host = f"gpupack-extender.{'n' * 63}.svc"
    data = issued(wanted=CertificateRequest("s", "gpupack-extender", host, 90))
    assert host in pair.read(data).hosts


def test_the_same_authority_renews_a_certificate_after_two_thirds_of_its_validity():
    data = issued()
    assert renew(WANTED, data, NOW + dt.timedelta(days=59)) is None
    later = renew(WANTED, data, NOW + dt.timedelta(days=61))
    assert later.reason is Reason.ENDS
    assert later.data["ca.crt"] == data["ca.crt"]
    assert later.data["tls.key"] != data["tls.key"]
    of(later.data).verify_directly_issued_by(of(data, "ca.crt"))


def test_a_certificate_without_the_key_of_its_authority_is_kept_until_renewal():
    data = {name: text for name, text in issued().items() if name != "ca.key"}
    assert renew(WANTED, data, NOW) is None
    later = renew(WANTED, data, NOW + dt.timedelta(days=80))
    assert later.data["ca.crt"] != data["ca.crt"]


def test_no_certificate_outlives_its_authority():
    longest = CertificateRequest("s", "gpupack-api", WANTED.host, 36500)
    data = issued(wanted=longest)
    later = renew(longest, data, NOW + dt.timedelta(days=30000)).data
    assert of(later).not_valid_after_utc <= of(later, "ca.crt").not_valid_after_utc


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("text", [None, "", "%", base64.b64encode(b"no PEM").decode()])
def test_an_incomplete_secret_gets_a_new_certificate(key, text):
    data = issued()
    data.pop(key) if text is None else data.update({key: text})
    assert renew(WANTED, data, NOW).reason is Reason.MISSING


@pytest.mark.parametrize("key", ["tls.key", "ca.crt"])
def test_mixed_parts_of_two_certificates_are_replaced(key):
    data = issued() | {key: issued()[key]}
    assert renew(WANTED, data, NOW).reason is Reason.MISSING


def test_a_certificate_for_another_namespace_is_replaced():
    other = CertificateRequest(WANTED.secret, WANTED.service, "gpupack-api.elsewhere.svc", 90)
    assert renew(other, issued(), NOW).reason is Reason.OTHER_HOST


@pytest.mark.parametrize("key", ["tls.crt", "tls.key"])
def test_a_secret_without_its_certificate_gets_another_one_of_the_same_authority(key):
    before = issued()
    left = {name: text for name, text in before.items() if name != key}
    after = renew(WANTED, left, NOW).data
    assert (after["ca.crt"], after["ca.key"]) == (before["ca.crt"], before["ca.key"])
    assert after["tls.key"] != before["tls.key"]
    assert after["tls.crt"] != before["tls.crt"]
    of(after).verify_directly_issued_by(of(before, "ca.crt"))


def test_an_authority_whose_key_is_another_ones_signs_nothing():
    before = issued()
    mixed = {"ca.crt": before["ca.crt"], "ca.key": issued()["ca.key"]}
    assert renew(WANTED, mixed, NOW).data["ca.crt"] != before["ca.crt"]


async def test_a_secret_is_filled_once(server):
    server.put(PATH, empty_secret())
    await fill(server.api, WANTED, namespace=NAMESPACE)
    await fill(server.api, WANTED, namespace=NAMESPACE)
    assert server.names("PATCH") == [PATH]
    assert set(server.objects[PATH]["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


async def test_only_one_of_two_concurrent_issuers_writes():
    api = ApiServer()
    api.put(PATH, empty_secret())
    api.slow["PATCH"] = 0.2
    async with connected(api.app()) as (one, _), connected(api.app()) as (other, _):
        await asyncio.gather(
            fill(one, WANTED, namespace=NAMESPACE), fill(other, WANTED, namespace=NAMESPACE)
        )
    assert len(api.names("PATCH")) == 2
    assert api.objects[PATH]["metadata"]["resourceVersion"] == "2"


async def test_the_process_fills_a_secret_created_later_and_ends_on_sigterm():
    api = ApiServer()
    lists = [{"secret": WANTED.secret, "service": WANTED.service, "host": WANTED.host}]
    lists[0]["validityDays"] = 90
    async with serving(api.app()) as address:
        with kubeconfig(address) as path:
            variables = environment(
                KUBECONFIG=path,
                GPUPACK_SYSTEM_NAMESPACE=NAMESPACE,
                GPUPACK_CERTIFICATES=json.dumps(lists),
            )
            command = (sys.executable, "-m", "gpupack_operator.certificates")
            process = await asyncio.create_subprocess_exec(*command, env=variables)
            async with asyncio.timeout(60):
                api.put(PATH, empty_secret())
                while "data" not in api.objects[PATH]:
                    await asyncio.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.mark.parametrize(
    "text", ["[{}]", '[{"secret":"s","service":"s","host":"h","validityDays":0}]', "{"]
)
def test_an_invalid_list_of_certificates_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        parse_certificate_requests(text)
