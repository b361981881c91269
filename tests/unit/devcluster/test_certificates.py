# SPDX-License-Identifier: Apache-2.0
"""Certificates that Kubernetes accepts."""

import base64
import datetime as dt
import ipaddress

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from gpupack_devcluster import certificates
from gpupack_devcluster.certificates import (
    LIFETIME,
    Authority,
    control_plane_identities,
    node_identity,
)


@pytest.fixture
def authority(tmp_path):
    made = Authority(tmp_path / "pki", "https://198.18.0.1:6443")
    made.prepare()
    return made


def load(tmp_path, name):
    return x509.load_pem_x509_certificate((tmp_path / "pki" / f"{name}.crt").read_bytes())


def test_a_kubelets_certificate_identifies_its_node(authority, tmp_path):
    authority.issue(node_identity("gpupack-1", "198.18.0.11"))
    subject = load(tmp_path, "gpupack-1").subject
    common = subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    group = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value
    assert (common, group) == ("system:node:gpupack-1", "system:nodes")


def test_the_api_server_may_be_called_by_address_and_by_its_service_name(authority, tmp_path):
    for identity in control_plane_identities(host="198.18.0.1", service="198.18.128.1"):
        authority.issue(identity)
    names = (
        load(tmp_path, "apiserver")
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)
    addresses = names.get_values_for_type(x509.IPAddress)
    assert ipaddress.ip_address("198.18.128.1") in addresses


def test_every_certificate_is_signed_by_the_authority(authority, tmp_path):
    authority.issue(node_identity("gpupack-1", "198.18.0.11"))
    load(tmp_path, "gpupack-1").verify_directly_issued_by(load(tmp_path, "ca"))


def test_a_kubeconfig_contains_all_data_and_only_root_can_read_it(authority, tmp_path):
    authority.issue(node_identity("gpupack-1", "198.18.0.11"))
    path = tmp_path / "pki" / "gpupack-1.kubeconfig"
    parsed = yaml.safe_load(path.read_text())
    key = base64.b64decode(parsed["users"][0]["user"]["client-key-data"])
    assert parsed["clusters"][0]["cluster"]["server"] == "https://198.18.0.1:6443"
    assert key == (tmp_path / "pki" / "gpupack-1.key").read_bytes()
    assert path.stat().st_mode & 0o077 == 0


def test_existing_certificates_are_not_written_again(authority, tmp_path):
    authority.issue(node_identity("gpupack-1", "198.18.0.11"))
    before = [load(tmp_path, "ca"), load(tmp_path, "gpupack-1")]
    authority.prepare()
    authority.issue(node_identity("gpupack-1", "198.18.0.11"))
    assert [load(tmp_path, "ca"), load(tmp_path, "gpupack-1")] == before


NODE = node_identity("gpupack-1", "198.18.0.11")


def made_with(lifetime, tmp_path, monkeypatch, *, node_lifetime=None):
    """Return an authority and a kubelet's certificate with the given validity."""
    with monkeypatch.context() as then:
        made = Authority(tmp_path / "pki", "https://198.18.0.1:6443")
        then.setattr(certificates, "LIFETIME", lifetime)
        made.prepare()
        then.setattr(certificates, "LIFETIME", node_lifetime or lifetime)
        made.issue(NODE)
    return made


def days_left(tmp_path, name):
    return (load(tmp_path, name).not_valid_after_utc - dt.datetime.now(dt.UTC)).days


def test_a_certificate_with_a_week_left_is_renewed_for_the_same_key(tmp_path, monkeypatch):
    week = dt.timedelta(days=7)
    authority = made_with(LIFETIME, tmp_path, monkeypatch, node_lifetime=week)
    key = (tmp_path / "pki/gpupack-1.key").read_bytes()
    assert authority.is_due()
    authority.prepare()
    authority.issue(NODE)
    assert not authority.is_due()
    assert days_left(tmp_path, "gpupack-1") == LIFETIME.days - 1
    assert (tmp_path / "pki/gpupack-1.key").read_bytes() == key


def test_every_kubeconfig_has_a_renewed_authority(tmp_path, monkeypatch):
    ended = dt.timedelta(minutes=-1)
    authority = made_with(ended, tmp_path, monkeypatch, node_lifetime=LIFETIME)
    before = load(tmp_path, "gpupack-1")
    authority.prepare()
    authority.issue(NODE)
    assert days_left(tmp_path, "ca") == LIFETIME.days - 1
    assert load(tmp_path, "gpupack-1") == before
    before.verify_directly_issued_by(load(tmp_path, "ca"))
    parsed = yaml.safe_load((tmp_path / "pki/gpupack-1.kubeconfig").read_text())
    held = parsed["clusters"][0]["cluster"]["certificate-authority-data"]
    assert base64.b64decode(held) == (tmp_path / "pki/ca.crt").read_bytes()


def test_a_new_authority_is_not_due(authority):
    assert not authority.is_due()
