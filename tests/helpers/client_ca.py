# SPDX-License-Identifier: Apache-2.0
"""A CA, and certificates that it signs for users and servers."""

import datetime as dt
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PEM = serialization.Encoding.PEM
HOUR = dt.timedelta(hours=1)


class ClientCa:
    """Signs; `above` is the CA that signed it, itself where there is none."""

    def __init__(self, name="kubernetes", *, above=None, lasts=HOUR):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name([(NameOID.COMMON_NAME, name)])
        signer = above or self
        self.certificate = (
            _builder(self.name, signer.name, self.key, lasts)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(signer.key, hashes.SHA256())
        )

    @property
    def pem(self):
        return self.certificate.public_bytes(PEM).decode()

    def signed(self, name="", *groups, lasts=HOUR, usage=ExtendedKeyUsageOID.CLIENT_AUTH, dns=()):
        """A certificate and its key; `dns`: names of a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [(NameOID.ORGANIZATION_NAME, each) for each in groups]
        subject += [(NameOID.COMMON_NAME, name)] if name else []
        builder = _builder(_name(subject), self.name, key, lasts).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if dns:
            names = x509.SubjectAlternativeName(map(x509.DNSName, dns))
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self.key, hashes.SHA256()), key

    def written(self, folder, name, *groups, **how):
        """Write a certificate and its key to tls.crt and tls.key below the folder."""
        certificate, key = self.signed(name, *groups, **how)
        form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        folder.mkdir(exist_ok=True, parents=True)
        (folder / "tls.crt").write_bytes(certificate.public_bytes(PEM))
        (folder / "tls.key").write_bytes(key.private_bytes(PEM, form, secret))
        return folder / "tls.crt", folder / "tls.key"


def presenting(server_certificate, shown=None):
    """A client's context, that trusts this server and shows these files."""
    context = ssl.create_default_context(cafile=server_certificate)
    if shown:
        context.load_cert_chain(*shown)
    return context


def _name(attributes):
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])


def _builder(subject, issuer, key, lasts):
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * HOUR)
        .not_valid_after(now + lasts)
    )
