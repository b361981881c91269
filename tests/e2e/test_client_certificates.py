# SPDX-License-Identifier: Apache-2.0
"""The REST API for users whose kubeconfig has a client certificate and no token."""

import base64
import contextlib
import json
import os
from pathlib import Path

import httpx
import pytest
import yaml
from client_ca import PEM, ClientCa
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from harness import STATE, wait_for
from rest_clients import client_by_certificate, viewer

from gpupack import CallRefused, TrainingGPUConfig
from gpupack.backend import Patience
from gpupack.cluster.opening import open_cluster
from gpupack.config import ClusterConfig

GROUP = "gpupack-tests"
FORGED = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}


@pytest.fixture
def administrator(kube, tmp_path):
    """Paths of the certificate of the cluster's own kubeconfig, and of its key."""
    (user,) = yaml.safe_load(kube.kubeconfig.read_text())["users"]
    paths = []
    for name in ("client-certificate", "client-key"):
        paths.append(tmp_path / f"{name}.pem")
        paths[-1].write_bytes(base64.b64decode(user["user"][f"{name}-data"]))
    return paths


@pytest.fixture
def tenant(kube, tmp_path):
    """Create a certificate for a user: (name, path of the certificate, path of its key)."""
    name = f"{kube.namespace}-alice"
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, GROUP),
        x509.NameAttribute(NameOID.COMMON_NAME, name),
    ]
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    kube.submit(
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": base64.b64encode(
                    request.sign(key, hashes.SHA256()).public_bytes(PEM)
                ).decode(),
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"],
                "expirationSeconds": 600,
            },
        }
    )
    try:
        kube.insist("certificate", "approve", name)
        signed = wait_for(
            lambda: kube.get("csr", name)["status"].get("certificate"),
            seconds=60,
            what="the certificate is signed",
        )
    finally:
        kube.insist("delete", "csr", name, "--ignore-not-found")
    certificate, secret = tmp_path / "tenant.crt", tmp_path / "tenant.key"
    certificate.write_bytes(base64.b64decode(signed))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(PEM, form, plain))
    return name, certificate, secret


def may_list_gpujobs(kube, user, *, by):
    """Bind the role to the user or to its group, and wait until the API server applies it."""
    kube.insist("create", "rolebinding", "reader", "--clusterrole=gpupack-view", by)
    asked = ("auth", "can-i", "list", "gpujobs", f"--as={user}", f"--as-group={GROUP}")
    wait_for(
        lambda: kube.kubectl(*asked).returncode == 0, seconds=30, what=f"{user} may list gpujobs"
    )


def test_the_administrators_certificate_sees_everything(kube, system, administrator, judged):
    kube.submit(judged.job("seen", gpus=8, workers=9, seconds=1))
    with client_by_certificate(system, *administrator) as api:
        assert api.get("status").json()["total_gpus"] > 0
        seen = wait_for(
            lambda: api.get("jobs", params={"namespace": kube.namespace}).json()["jobs"] or None,
            seconds=60,
            what="the job is shown",
        )
        assert [each["name"] for each in seen] == ["seen"]
        assert api.get("snapshot").status_code == 200
        assert api.post("validate", json={"gpu_count": 1}).json()["valid"]


@pytest.mark.parametrize("by", ["user", "group"])
def test_a_tenants_certificate_reads_its_own_namespace(kube, others, system, tenant, judged, by):
    name, *files = tenant
    may_list_gpujobs(kube, name, by=f"--user={name}" if by == "user" else f"--group={GROUP}")
    elsewhere = others("elsewhere")
    for each in (kube, elsewhere):
        each.submit(judged.job("waits", gpus=8, workers=9, seconds=1))
    with client_by_certificate(system, *files) as api:
        assert api.get("status").status_code == 200
        seen = wait_for(
            lambda: api.get("jobs").json()["jobs"] or None, seconds=30, what="the job is shown"
        )
        assert {each["namespace"] for each in seen} == {kube.namespace}
        refused = api.get("jobs", params={"namespace": elsewhere.namespace})
        assert (refused.status_code, name in refused.json()["detail"]) == (403, True)
        assert api.get("snapshot").status_code == 403
        costs = api.get("cost", timeout=30)
        assert (costs.status_code, costs.json()["unheld"]) == (200, None), costs.text
        assert {each["namespace"] for each in costs.json()["rows"]} <= {kube.namespace}
        refused = api.get("cost", params={"namespace": elsewhere.namespace})
        assert (refused.status_code, name in refused.json()["detail"]) == (403, True)
        asked = {"namespace": kube.namespace, "job": {"gpus": 1}, "judged": True}
        refused = api.post("what-if", json=asked)
        assert (refused.status_code, "create" in refused.json()["detail"]) == (403, True)


def test_an_allocation_by_certificate_also_needs_a_token(kube, system, tenant):
    name, *files = tenant
    may_list_gpujobs(kube, name, by=f"--user={name}")
    asked = {"gpu_count": 1, "gpu_type": "H100", "seconds": 60, "namespace": kube.namespace}
    with (
        viewer(kube, "gpupack-edit") as token,
        client_by_certificate(system, *files) as api,
    ):
        refused = api.post("allocate", json=asked)
        assert refused.status_code == 401
        assert refused.json()["field"] == "Authorization"
        assert "kubectl create token" in refused.json()["fix"]
        assert kube.gpujobs() == []
        bearer = {"Authorization": f"Bearer {token}"}
        made = api.post("allocate", json=asked, headers=bearer, timeout=30)
        assert made.status_code == 201, made.text
        path = f"allocations/{made.json()['allocation_id']}"
        assert api.get(path).status_code == 200
        assert api.delete(path).status_code == 401
        assert api.delete(path, headers=bearer).status_code == 204


def test_a_caller_without_a_certificate_is_not_authenticated(system):
    with client_by_certificate(system) as api:
        for path in ("status", "nodes", "jobs"):
            assert api.get(path, headers=FORGED).status_code == 401
        assert api.get("health").status_code == 200


def test_a_certificate_of_another_ca_is_refused(system, tmp_path):
    forged = ClientCa("kubernetes-ca").written(tmp_path / "forged", "admin", "system:masters")
    with client_by_certificate(system, *forged) as api, pytest.raises(httpx.TransportError):
        api.get("status")


def test_the_port_of_the_dashboard_requests_no_certificate(system, administrator):
    with client_by_certificate(system, *administrator, port=443) as api:
        refused = api.get("status")
        assert (refused.status_code, refused.json()["detail"]) == (401, "send a bearer token")


def test_the_python_api_reads_by_the_kubeconfigs_certificate(kube):
    environ = {
        "PATH": f"{STATE / 'bin'}:{os.environ['PATH']}",
        "HOME": str(Path.home()),
        "KUBECONFIG": str(kube.kubeconfig),
    }
    config = ClusterConfig(namespace=kube.namespace)
    with contextlib.closing(open_cluster(config, environ)) as backend:
        assert backend.status().total_gpus > 0
        assert backend.validate(TrainingGPUConfig(gpu_count=1)).valid
        with pytest.raises(CallRefused, match="set GPUPACK_TOKEN"):
            backend.allocate(TrainingGPUConfig(gpu_count=1), Patience(0, 60))
    assert kube.gpujobs() == []


def test_the_client_ca_that_the_api_reads_is_published_by_the_cluster(system):
    """The premise: an API server publishes its client CA, from which the tests above follow."""
    name = ("extension-apiserver-authentication", "--namespace=kube-system")
    configmap = json.loads(system.insist("get", "configmap", *name, "--output=json"))
    assert "BEGIN CERTIFICATE" in configmap["data"]["client-ca-file"]
