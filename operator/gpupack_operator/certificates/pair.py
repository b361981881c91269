# SPDX-License-Identifier: Apache-2.0
"""A server's certificate with the authority that signed it.

Each Service has its own authority, and the authority's key stays in the Secret. The same authority
signs renewed certificates, so callers, which have its certificate, need no new one. A pod mounts
only the keys of the Secret that it needs, and no pod mounts `ca.key`. An administrator removes
`tls.crt` to get another certificate, and all keys to get another authority too.
"""

import base64
import binascii
import datetime as dt
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpupack_operator.certificates.certificate_requests import CertificateRequest

AUTHORITY_VALIDITY: Final = dt.timedelta(days=36525)
"""A hundred years: an authority is replaced when its Secret is emptied, not when time passes."""
BACKDATING: Final = dt.timedelta(days=1)
"""Lets a caller whose clock is slow accept a new certificate."""

CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

_UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm)
"""Errors that cryptography raises for a key or a certificate that it cannot read."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate that signs others, and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Pair:
    """A server's certificate.

    Attributes:
        certificate: the server's own certificate.
        issuer: the certificate that callers trust.
    """

    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def hosts(self) -> frozenset[str]:
        """DNS names for which the certificate is valid."""
        try:
            names = self.certificate.extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            ).value
        except (
            x509.ExtensionNotFound,
            x509.DuplicateExtension,
            x509.UnsupportedGeneralNameType,
            ValueError,
        ):
            return frozenset()
        return frozenset(names.get_values_for_type(x509.DNSName))

    @property
    def until(self) -> dt.datetime:
        """Time at which the certificate or its issuer expires, whichever is first."""
        ends = (self.certificate, self.issuer)
        return min(each.not_valid_after_utc for each in ends)


def read(data: Mapping[str, str]) -> Pair | None:
    """Read a Secret's data; return None if it lacks a certificate with its key and its issuer."""
    try:
        texts = {name: base64.b64decode(text, validate=True) for name, text in data.items()}
        certificate = x509.load_pem_x509_certificate(texts[CERTIFICATE])
        issuer = x509.load_pem_x509_certificate(texts[CA_CERTIFICATE])
        key = serialization.load_pem_private_key(texts[KEY], None)
        certificate.verify_directly_issued_by(issuer)
        is_its_own = key.public_key() == certificate.public_key()
    except (KeyError, binascii.Error, InvalidSignature, *_UNREADABLE):
        return None
    if not is_its_own:
        return None
    return Pair(certificate, issuer)


def read_authority(data: Mapping[str, str]) -> Authority | None:
    """Read the authority in a Secret's data, whatever else the data lacks.

    Return None if there is no key that fits the authority's certificate.
    """
    try:
        certificate, text = (
            base64.b64decode(data[name], validate=True) for name in (CA_CERTIFICATE, CA_KEY)
        )
        issuer = x509.load_pem_x509_certificate(certificate)
        key = serialization.load_pem_private_key(text, None)
    except (KeyError, binascii.Error, *_UNREADABLE):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != issuer.public_key():
        return None
    return Authority(issuer, key)


def issue(
    request: CertificateRequest, now: dt.datetime, authority: Authority | None
) -> dict[str, str]:
    """Issue a certificate and return the Secret's data.

    Args:
        request: hosts and validity of the certificate.
        now: the API server's time.
        authority: the authority that signs; None: create a new one.
    """
    authority = authority or _new_authority(request, now)
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + request.validity, authority.certificate.not_valid_after_utc)
    names = [x509.DNSName(host) for host in request.hosts]
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        _certificate(request.service, authority.certificate.subject, key, now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([*names, address]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    return {
        CA_CERTIFICATE: _text(authority.certificate),
        CA_KEY: _key_text(authority.key),
        CERTIFICATE: _text(certificate),
        KEY: _key_text(key),
    }


def _new_authority(request: CertificateRequest, now: dt.datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"{request.service}-ca")
    certificate = (
        _certificate(f"{request.service}-ca", subject, key, now, now + AUTHORITY_VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def _certificate(
    subject: str,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    until: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATING)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    """Return a name.

    A common name has at most 64 characters, so longer hosts are only DNS names.
    """
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _text(certificate: x509.Certificate) -> str:
    return base64.b64encode(certificate.public_bytes(serialization.Encoding.PEM)).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return base64.b64encode(text).decode()
