# SPDX-License-Identifier: Apache-2.0
"""Certificates are replaced in their Secrets while the parts run."""

import base64
import contextlib
import datetime as dt
import json
import ssl
import time

import pytest
from client_ca import ClientCa
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from harness import cluster_kind, wait_for
from parts import pods_of_part, restarts

pytestmark = [
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.skipif(
        cluster_kind() == "kind", reason="pods of kind cannot be reached from this host"
    ),
]

SERVED_BY = {
    "scheduler": ("gpupack-extender", 8443),
    "api": ("gpupack-api", 8444),
    "cost": ("gpupack-cost", 8445),
    "operator": ("gpupack-metrics", 9443),
    "agent": ("gpupack-metrics", 9443),
}
NAMES = sorted({name for name, _ in SERVED_BY.values()})


def secret(system, name):
    return json.loads(system.insist("get", "secret", f"{name}-certificate", "-o", "json"))["data"]


def signed(folder, host):
    """Return what a Secret holds of a new certificate of a new CA."""
    authority = ClientCa(f"{host} CA", lasts=dt.timedelta(days=365))
    how = {"lasts": dt.timedelta(days=90), "usage": ExtendedKeyUsageOID.SERVER_AUTH}
    certificate, key = authority.written(folder, host, dns=[host, "localhost"], **how)
    data = {"ca.crt": authority.pem.encode()}
    data |= {"tls.crt": certificate.read_bytes(), "tls.key": key.read_bytes()}
    return {name: base64.b64encode(content).decode() for name, content in data.items()}


def write(system, name, data):
    patch = json.dumps({"data": data})
    system.insist("patch", "secret", f"{name}-certificate", "--type=merge", f"--patch={patch}")


def hurry(system):
    """A change of a pod has its kubelet look at the pod's Secrets at once."""
    for part in SERVED_BY:
        for pod in pods_of_part(system, part):
            name = pod["metadata"]["name"]
            system.insist("annotate", "pod", name, "--overwrite", f"hurry={time.monotonic()}")


@pytest.fixture
def kept(system):
    """The Secrets as they were come back, and are served again: other tests know their CAs."""
    before = {name: secret(system, name) for name in NAMES}
    yield
    for name, data in before.items():
        write(system, name, data)
    served_everywhere(system, {name: leaf(data) for name, data in before.items()})


def leaf(data):
    return x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))


def shown(address, port):
    """The certificate that a server shows; None: it does not answer."""
    with contextlib.suppress(OSError):
        text = ssl.get_server_certificate((address, port), timeout=10)
        return x509.load_pem_x509_certificate(text.encode())
    return None


def served_everywhere(system, wanted):
    hurry(system)

    def look():
        return all(
            shown(pod["status"]["podIP"], port) == wanted[name]
            for part, (name, port) in SERVED_BY.items()
            for pod in pods_of_part(system, part)
        )

    wait_for(look, seconds=150, what="every pod of every part serves its Secret's certificate")


@pytest.mark.usefixtures("kept")
def test_renewed_certificates_are_served_without_a_restart(kube, system, judged, tmp_path):
    began = restarts(system)
    renewed = {}
    for name in NAMES:
        data = signed(tmp_path / name, f"{name}.{system.namespace}.svc")
        write(system, name, data)
        renewed[name] = leaf(data)
    served_everywhere(system, renewed)
    # The operator trusts the new CA, too: a job is planned.
    kube.submit(judged.job("after", gpus=1, seconds=0.1))
    kube.wait_phase("after", "Succeeded", seconds=180)
    assert restarts(system) == began
