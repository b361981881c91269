# SPDX-License-Identifier: Apache-2.0
"""Certificates and kubeconfigs; with elliptic-curve keys, since RSA keys take seconds.

A certificate with less than `RENEWED_BEFORE` left is signed again for its existing key, so that a
daemon's certificate stays valid under a renewed authority.
"""

import base64
import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=365)
RENEWED_BEFORE = dt.timedelta(days=30)


@dataclass(frozen=True)
class Identity:
    """The user or server that a certificate identifies."""

    file: str
    """Base name of the files: FILE.crt, FILE.key, FILE.kubeconfig."""
    user: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """DNS names and addresses of a server."""


def control_plane_identities(*, host: str, service: str) -> tuple[Identity, ...]:
    """Return the control plane's identities; `admin` also identifies the API server to kubelets."""
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    masters = ("system:masters",)
    return (
        Identity(
            "apiserver",
            "kube-apiserver",
            hosts=(
                host,
                service,
                "127.0.0.1",
                "localhost",
                *names,
                "kubernetes.default.svc.cluster.local",
            ),
        ),
        Identity("admin", "admin", groups=masters),
        Identity("coredns", "coredns", groups=masters),
        Identity("kwok", "kwok", groups=masters),
        Identity("controller-manager", "system:kube-controller-manager"),
        Identity("scheduler", "system:kube-scheduler"),
        Identity("proxy", "system:kube-proxy"),
    )


def node_identity(name: str, address: str) -> Identity:
    """Return the identity of a node's kubelet."""
    return Identity(name, f"system:node:{name}", groups=("system:nodes",), hosts=(name, address))


class Authority:
    """The cluster's certificate authority, kept in a folder."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder = folder
        self._server = server

    def is_due(self) -> bool:
        """Return whether the authority's own or another certificate expires soon or has expired."""
        return any(ends_soon(path) for path in self._folder.glob("*.crt"))

    def prepare(self) -> None:
        """Create the authority and the key of service accounts, unless they exist."""
        certificate = self._folder / "ca.crt"
        if certificate.exists() and not ends_soon(certificate):
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not certificate.exists():
            self._write_service_account_keys()
        key = self._key("ca")
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpupack-devcluster")])
        builder = start(name, key.public_key()).issuer_name(name)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        builder = builder.add_extension(constraints, critical=True)
        write_certificate(certificate, builder.sign(key, hashes.SHA256()))

    def issue(self, identity: Identity) -> None:
        """Write certificate, key and kubeconfig of an identity, unless they exist."""
        certificate = self._folder / f"{identity.file}.crt"
        if not certificate.exists() or ends_soon(certificate):
            write_certificate(certificate, self._sign(identity, self._key(identity.file)))
        # Written each time: it holds the authority's certificate, which may have changed.
        kubeconfig = self._folder / f"{identity.file}.kubeconfig"
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(self.kubeconfig(identity.file))
        kubeconfig.chmod(0o600)

    def kubeconfig(self, file: str) -> str:
        """Return a kubeconfig that contains all its data, so that it can be copied anywhere."""
        authority, certificate, key = (
            base64.b64encode((self._folder / name).read_bytes()).decode()
            for name in ("ca.crt", f"{file}.crt", f"{file}.key")
        )
        cluster = {"server": self._server, "certificate-authority-data": authority}
        user = {"client-certificate-data": certificate, "client-key-data": key}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "gpupack", "cluster": cluster}],
                "users": [{"name": file, "user": user}],
                "contexts": [{"name": "gpupack", "context": {"cluster": "gpupack", "user": file}}],
                "current-context": "gpupack",
            }
        )

    def _sign(self, identity: Identity, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        certificate = x509.load_pem_x509_certificate((self._folder / "ca.crt").read_bytes())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = start(subject(identity), key.public_key()).issuer_name(certificate.subject)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if identity.hosts:
            alternatives = x509.SubjectAlternativeName([host_name(h) for h in identity.hosts])
            builder = builder.add_extension(alternatives, critical=False)
        return builder.sign(self._key("ca"), hashes.SHA256())

    def _key(self, file: str) -> ec.EllipticCurvePrivateKey:
        """Return the key of an identity; create it where there is none."""
        path = self._folder / f"{file}.key"
        if not path.exists():
            write_key(path, ec.generate_private_key(ec.SECP256R1()))
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{path} is not an elliptic-curve key")
        return key

    def _write_service_account_keys(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        write_key(self._folder / "service-accounts.key", key)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self._folder / "service-accounts.pub").write_bytes(public)


def subject(identity: Identity) -> x509.Name:
    """Return a subject: Kubernetes reads the user from CN and the groups from the organisations."""
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in identity.groups]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, identity.user)])


def host_name(host: str) -> x509.GeneralName:
    """Return an address or a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def ends_soon(path: Path) -> bool:
    """Return whether a certificate has to be renewed now."""
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return certificate.not_valid_after_utc - dt.datetime.now(dt.UTC) < RENEWED_BEFORE


def start(name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    """Start a certificate that is valid from an hour ago, for clocks that differ."""
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a key as PEM that only root can read."""
    data = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    path.touch(mode=0o600)
    path.write_bytes(data)


def write_certificate(path: Path, certificate: x509.Certificate) -> None:
    """Write a certificate as PEM."""
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
