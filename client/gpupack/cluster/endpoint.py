# SPDX-License-Identifier: Apache-2.0
"""The address of a cluster's REST API, and the caller's credentials.

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
from gpupack_kubeclient.ca_file import CaFile

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

Token = Callable[[], str]
Trust = Callable[[], ssl.SSLContext]
"""The CAs of a server: called for each call, since the file may be replaced."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server with the credentials of its caller.

    Attributes:
        address: address without a path; called for each call, since a port-forward may restart.
        trusted: context that verifies its certificate, and presents the caller's, if there is one.
        token: called for each call, since tokens are renewed; None: a certificate identifies the
            caller.
        namespace: the namespace whose quota allocations count against; empty: the service account's
            own.
        close: closes what was opened to reach the server.
        forget: called when the server rejects the token; returns whether there may be another now.
        direct: no proxy is used.
    """

    address: Callable[[], str]
    trusted: Trust
    token: Token | None
    namespace: str
    close: Callable[[], None]
    forget: Callable[[], bool] = lambda: False
    direct: bool = False


def in_pod(environ: Mapping[str, str]) -> bool:
    """Return whether this is a pod with a token of its service account."""
    return "KUBERNETES_SERVICE_HOST" in environ and (SERVICE_ACCOUNT / "token").exists()


def pod_namespace(environ: Mapping[str, str]) -> str:
    """Return the namespace of this pod; empty: there is no pod, or its namespace is unknown."""
    if not in_pod(environ):
        return ""
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        return ""


def require_private(address: str) -> str:
    """Return the address, unless a token would be sent to it in the clear.

    Raises:
        ConfigInvalid: it would be, or the address is not valid.
    """
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise ConfigInvalid(
            f"cluster.server: {address!r} is not an address ({error}); write https://HOST:PORT"
        ) from error
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise ConfigInvalid(
            f"cluster.server: {address!r}; write an https:// address: the token would be sent in "
            "the clear"
        )
    return address.rstrip("/")


def is_direct(address: str) -> bool:
    """Return whether the address is reached without a proxy."""
    host = urlsplit(address).hostname or ""
    return host in LOOPBACK or host.endswith(".svc")


def trusted_by(file: str) -> Trust:
    """Trust the content of this file, also after it is replaced; empty: the system's CAs.

    Raises:
        ConfigInvalid: the file cannot be read, or has no certificates.
    """
    try:
        return CaFile(Path(file) if file else None).context
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(
            f"cluster.ca: {file!r}: {error}; name a file with the certificate ca.crt of secret "
            "gpupack-api-certificate"
        ) from error


def own_token(environ: Mapping[str, str]) -> Token | None:
    """Return GPUPACK_TOKEN, or the pod's service account token; None: there is neither."""
    if token := environ.get("GPUPACK_TOKEN", "").strip():
        return lambda: token
    if in_pod(environ):
        return (SERVICE_ACCOUNT / "token").read_text
    return None
