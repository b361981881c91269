# SPDX-License-Identifier: Apache-2.0
"""Where a program learns of a cluster, and who it is there.

GPUPACK_SERVER (GPUPACK_CA, GPUPACK_TOKEN)  that address
in a pod                                    https://gpupack-api.NAMESPACE.svc, see `release`
else                                        kubectl port-forward, with the kubeconfig's token or
                                            client certificate (`caller`)
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gpupack.errors import ConfigInvalid
from gpupack_kube.ca_file import CaFile

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

Token = Callable[[], str]
Trust = Callable[[], ssl.SSLContext]
"""By which CAs a server is known: asked for each call, since the file may be replaced."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server, and who calls it.

    Attributes:
        address: without a path; asked for each call, since what leads there may begin anew.
        trusted: what its certificate is checked by; presents the caller's, if there is one.
        token: asked for each call, since tokens are renewed; None: he is known by a certificate.
        namespace: whose quota allocations count against; empty: the service account's own.
        close: lets go of what was opened to reach it.
        forget: the server does not know the token; whether there may be another now.
        direct: no proxy leads there.
    """

    address: Callable[[], str]
    trusted: Trust
    token: Token | None
    namespace: str
    close: Callable[[], None]
    forget: Callable[[], bool] = lambda: False
    direct: bool = False


def in_pod(environ: Mapping[str, str]) -> bool:
    """Whether this is a pod with a token of its service account."""
    return "KUBERNETES_SERVICE_HOST" in environ and (SERVICE_ACCOUNT / "token").exists()


def pod_namespace(environ: Mapping[str, str]) -> str:
    """Return the namespace of this pod; empty: this is none, or the pod does not say."""
    if not in_pod(environ):
        return ""
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        return ""


def require_private(address: str) -> str:
    """The address, unless a token would travel to it in the clear.

    Raises:
        ConfigInvalid: it would, or it is no address.
    """
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise ConfigInvalid(
            f"cluster.server: {address!r} is no address ({error}); write https://HOST:PORT"
        ) from error
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise ConfigInvalid(
            f"cluster.server: {address!r}; write an https:// address: the token would be sent in "
            "the clear"
        )
    return address.rstrip("/")


def is_direct(address: str) -> bool:
    """Whether no proxy leads there."""
    host = urlsplit(address).hostname or ""
    return host in LOOPBACK or host.endswith(".svc")


def trusted_by(file: str) -> Trust:
    """Trust what this file holds, also once it is replaced; empty: the system's certificates.

    Raises:
        ConfigInvalid: it cannot be read, or has none.
    """
    try:
        return CaFile(Path(file) if file else None).context
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(
            f"cluster.ca: {file!r}: {error}; name a file with the certificate ca.crt of secret "
            "gpupack-api-certificate"
        ) from error


def own_token(environ: Mapping[str, str]) -> Token | None:
    """GPUPACK_TOKEN, or the pod's service account's; None: there is neither."""
    if token := environ.get("GPUPACK_TOKEN", "").strip():
        return lambda: token
    if in_pod(environ):
        return (SERVICE_ACCOUNT / "token").read_text
    return None
