# SPDX-License-Identifier: Apache-2.0
"""How the server is verified, and which client certificate is presented.

Python's own default context is not used. From 3.13 on it refuses CAs that Go accepts. It also
refuses a server certificate that is itself among the CAs, which Go accepts.
"""

import ssl
import tempfile
from pathlib import Path
from typing import Any

from gpupack_kubeclient.ca_file import pem_text
from gpupack_kubeclient.kubeconfig.presented import NoCredentials, Presented


class NamedContext(ssl.SSLContext):
    """A context that always requests the same server name, whatever a library requests.

    Attributes:
        named: the name; empty: the name that the library requests.
    """

    named: str = ""

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Start a TLS connection for asyncio."""
        if self.named:
            named["server_hostname"] = self.named
        return super().wrap_bio(*given, **named)


def context(
    *, authority: bytes, insecure: bool, server_name: str, presented: Presented
) -> ssl.SSLContext:
    """Make a context.

    Args:
        authority: PEM of the CAs; empty: the system's.
        insecure: the server's certificate is not verified.
        server_name: the name that the server's certificate has to be for; empty: the address.
        presented: the credentials with the client's certificate.

    Raises:
        OSError: the CAs are not valid.
        NoCredentials: the client's certificate is not valid, or its key does not match.
    """
    made = NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    made.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    made.named = server_name
    if insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    elif authority:
        _trust(made, authority)
    else:
        made.load_default_certs()
    if presented.certificate:
        show(made, presented)
    return made


def show(made: ssl.SSLContext, presented: Presented) -> None:
    """Load the client's certificate into a context.

    Raises:
        NoCredentials: the certificate is not valid, or its key does not match.
    """
    # Python's ssl reads certificates only from files.
    with tempfile.TemporaryDirectory(prefix="gpupack-") as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        for path, content in ((certificate, presented.certificate), (key, presented.key)):
            path.touch(mode=0o600)
            path.write_bytes(content)
        try:
            # Without a password OpenSSL would prompt for that of an encrypted key on the terminal.
            made.load_cert_chain(certificate, key, password=lambda: b"")
        except (OSError, ValueError) as error:
            raise NoCredentials(
                f"the client certificate cannot be used: {error}; is it PEM, and its key its own?"
            ) from error


def _trust(made: ssl.SSLContext, authority: bytes) -> None:
    try:
        made.load_verify_locations(cadata=pem_text(authority))
    except (OSError, ValueError) as error:
        raise OSError(f"the CA is no certificate in PEM: {error}") from error
