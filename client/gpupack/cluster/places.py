# SPDX-License-Identifier: Apache-2.0
"""Where a program learns of a cluster, and who it is there.

GPUPACK_SERVER (GPUPACK_CA, GPUPACK_TOKEN)  that address
in a pod                                    https://gpupack-api.NAMESPACE.svc, see `release`
else                                        kubectl port-forward, with the kubeconfig's token or
                                            client certificate
"""

import base64
import dataclasses
import datetime as dt
import json
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gpupack.errors import ConfigInvalid, ServerNotFound

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
EXEC_SECONDS: Final = 60.0
RENEWED_BEFORE: Final = dt.timedelta(seconds=60)

Token = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server, and who calls it.

    Attributes:
        address: without a path; asked for each call, since what leads there may begin anew.
        trusted: what its certificate is checked by; presents the caller's where he has one.
        token: asked for each call, since tokens are renewed; None: he is known by a certificate.
        namespace: whose quota allocations count against; empty: the service account's own.
        close: lets go of what was opened to reach it.
        forget: the server does not know the token; whether there may be another now.
        direct: no proxy leads there.
    """

    address: Callable[[], str]
    trusted: ssl.SSLContext
    token: Token | None
    namespace: str
    close: Callable[[], None]
    forget: Callable[[], bool] = lambda: False
    direct: bool = False


def in_pod(environ: Mapping[str, str]) -> bool:
    """Whether this is a pod with a token of its service account."""
    return "KUBERNETES_SERVICE_HOST" in environ and (SERVICE_ACCOUNT / "token").exists()


def has_kubeconfig(environ: Mapping[str, str]) -> bool:
    """Whether kubectl would find one."""
    named = environ.get("KUBECONFIG")
    files = named.split(":") if named else [str(Path.home() / ".kube" / "config")]
    return any(Path(each).is_file() for each in files if each)


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


def trusted_by(file: str) -> ssl.SSLContext:
    """Certificates of this file; empty: the system's.

    Raises:
        ConfigInvalid: it cannot be read, or has none.
    """
    try:
        return ssl.create_default_context(cafile=file or None)
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


def token_of_user(user: Mapping[str, Any], environ: Mapping[str, str]) -> Token:
    """A kubeconfig user's token.

    Raises:
        ServerNotFound: he has none, or the program that tells it fails.
    """
    if token := user.get("token"):
        return lambda: str(token)
    if file := user.get("tokenFile"):
        return Path(file).read_text
    if program := user.get("exec"):
        return ProgramToken(program, environ)
    raise ServerNotFound(
        "the kubeconfig's user has neither a token nor a client certificate, by which the REST API "
        "knows callers; set GPUPACK_TOKEN to what `kubectl create token ACCOUNT` prints"
    )


def present(context: ssl.SSLContext, user: Mapping[str, Any]) -> bool:
    """Have a context present a kubeconfig user's certificate; whether he has one and no token.

    Raises:
        ServerNotFound: it is none, or its key is another's.
    """
    fields = ("client-certificate-data", "client-key-data")
    if any(user.get(name) for name in _TOKENS) or not all(user.get(name) for name in fields):
        return False
    with tempfile.TemporaryDirectory(prefix="gpupack-") as folder:
        certificate, key = (Path(folder, name) for name in fields)
        try:
            for path in (certificate, key):
                path.touch(mode=0o600)
                path.write_bytes(base64.b64decode(user[path.name], validate=True))
            # Without it a key that is encrypted would be asked for on the terminal.
            context.load_cert_chain(certificate, key, password=lambda: b"")
        except (OSError, ValueError) as error:
            raise ServerNotFound(
                f"the kubeconfig's client certificate cannot be used: {error}"
            ) from error
    return True


_TOKENS: Final = ("token", "tokenFile", "exec")
"""Fields of a kubeconfig's user that lead to a token."""


class ProgramToken:
    """What a program tells, asked again before it ends and when the server knows it no more.

    Args:
        program: `exec` of a kubeconfig's user.
        environ: of this process.

    Raises:
        ServerNotFound: the program fails.
    """

    def __init__(self, program: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._program, self._environ = program, environ
        self._asking = threading.Lock()
        self._told = _told_by(program, environ)

    def __call__(self) -> str:
        """Good for a while; raises ServerNotFound where the program fails."""
        with self._asking:
            until = self._told.until
            if until is not None and dt.datetime.now(dt.UTC) >= until - RENEWED_BEFORE:
                self._told = _told_by(self._program, self._environ)
            return self._told.token

    def forget(self) -> bool:
        """The server does not know it: the program is asked again."""
        with self._asking:
            self._told = dataclasses.replace(self._told, until=dt.datetime.now(dt.UTC))
        return True


@dataclass(frozen=True, slots=True)
class _Told:
    """`until`: None: its program does not say."""

    token: str
    until: dt.datetime | None


def _told_by(program: Mapping[str, Any], environ: Mapping[str, str]) -> _Told:
    """As kubectl runs it: of kind ExecCredential."""
    asked = {
        "kind": "ExecCredential",
        "apiVersion": program.get("apiVersion", "client.authentication.k8s.io/v1"),
        "spec": {"interactive": False},
    }
    more = {each["name"]: each["value"] for each in program.get("env") or ()}
    command = [str(program["command"]), *map(str, program.get("args") or ())]
    try:
        done = subprocess.run(  # noqa: S603 - the kubeconfig is the user's own
            command,
            env={**environ, **more, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            capture_output=True,
            text=True,
            timeout=EXEC_SECONDS,
            check=True,
        )
        status = json.loads(done.stdout)["status"]
        ends = status.get("expirationTimestamp")
        return _Told(str(status["token"]), dt.datetime.fromisoformat(ends) if ends else None)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        said = getattr(error, "stderr", "") or error
        raise ServerNotFound(
            f"the kubeconfig's user gets his token from {command[0]}, which failed: {said}; run it "
            "yourself, or set GPUPACK_TOKEN"
        ) from error
