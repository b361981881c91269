# SPDX-License-Identifier: Apache-2.0
"""How the server is checked, and which certificate it is shown.

Python's own default context was rejected: from 3.13 on it refuses CAs that Go accepts, and it does
not accept a server's certificate that stands among the CAs itself, which Go does.
"""

import ssl
import tempfile
from pathlib import Path
from typing import Any

from gpupack_kube.ca_file import pem_text
from gpupack_kube.kubeconfig.presented import NoCredentials, Presented


class NamedContext(ssl.SSLContext):
    """A context that asks for the same server name, whatever a library asks for.

    Attributes:
        named: the name; empty: as the library asks.
    """

    named: str = ""

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Begin a connection of asyncio's."""
        if self.named:
            named["server_hostname"] = self.named
        return super().wrap_bio(*given, **named)


def context(
    *, authority: bytes, insecure: bool, server_name: str, presented: Presented
) -> ssl.SSLContext:
    """Make a context.

    Args:
        authority: PEM of the CAs; empty: the system's.
        insecure: the server is not checked.
        server_name: what its certificate has to be for; empty: the address.
        presented: has the client's certificate.

    Raises:
        OSError: the CAs are none.
        NoCredentials: the client's certificate is none, or its key is another's.
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
    """Have a context show the client's certificate.

    Raises:
        NoCredentials: it is none, or its key is another's.
    """
    # Python's ssl reads certificates from files alone.
    with tempfile.TemporaryDirectory(prefix="gpupack-") as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        for path, content in ((certificate, presented.certificate), (key, presented.key)):
            path.touch(mode=0o600)
            path.write_bytes(content)
        try:
            # Without a password a key that is encrypted would be asked for on the terminal.
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
