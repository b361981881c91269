# SPDX-License-Identifier: Apache-2.0
"""The caller of the REST API from a kubeconfig: its user's token, or its client certificate.

The REST API identifies callers by their own credentials. A kubeconfig that impersonates another
user (`as`) is refused, since the call would have the permissions of the user behind it.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gpupack.cluster.endpoint import Token, Trust, own_token
from gpupack.errors import ServerNotFound
from gpupack_kubeclient.environment import SettingsInvalid
from gpupack_kubeclient.kubeconfig import tls
from gpupack_kubeclient.kubeconfig.credentials import Credentials
from gpupack_kubeclient.kubeconfig.presented import NoCredentials, Presented
from gpupack_kubeclient.kubeconfig.target import Target, target_of

SET_TOKEN: Final = "set GPUPACK_TOKEN to what `kubectl create token ACCOUNT` prints"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Caller:
    """The credentials of a call.

    Attributes:
        token: called for each call, since tokens are renewed; None: a certificate identifies the
            caller.
        forget: called when the server rejects the credentials; returns whether there are others
            now.
        namespace: namespace of the kubeconfig's context.
        presenting: makes contexts present the client certificate; with a token it changes nothing.
    """

    token: Token | None
    forget: Callable[[], bool]
    namespace: str
    presenting: Callable[[Trust], Trust] = lambda trusted: trusted


def caller_of(environ: Mapping[str, str]) -> Caller:
    """Return the caller.

    Raises:
        ServerNotFound: the kubeconfig has no credentials that the REST API accepts.
    """
    target = _target(environ)
    if (token := own_token(environ)) is not None:
        return Caller(token, lambda: False, target.namespace)
    _require_no_impersonation(target)
    credentials = Credentials(target.sign_in)
    presented = _presented(credentials)
    if presented.bearer:
        return Caller(
            lambda: _presented(credentials).bearer,
            lambda: _renewed(credentials, _presented(credentials)),
            target.namespace,
        )
    if not presented.certificate:
        raise ServerNotFound(
            "the kubeconfig's user has neither a token nor a client certificate, which the REST "
            f"API needs; {SET_TOKEN}"
        )
    return Caller(
        None,
        lambda: _renewed(credentials, _presented(credentials)),
        target.namespace,
        presenting=lambda trusted: _Presenting(trusted, credentials).context,
    )


class _Presenting:
    """TLS contexts that present a client certificate, including a renewed one.

    Args:
        trusted: returns the contexts, which are changed; their next connection presents the
            certificate.
        credentials: credentials of the caller.

    Raises:
        ServerNotFound: there is no usable certificate.
    """

    def __init__(self, trusted: Trust, credentials: Credentials) -> None:
        self._trusted, self._credentials = trusted, credentials
        self._shown: tuple[ssl.SSLContext, Presented] | None = None
        self.context()

    def context(self) -> ssl.SSLContext:
        """Return the context for the next request; raises ServerNotFound."""
        now = (self._trusted(), _presented(self._credentials))
        if now != self._shown:
            _load_certificate(*now)
            self._shown = now
        return now[0]


def _target(environ: Mapping[str, str]) -> Target:
    try:
        return target_of(environ)
    except SettingsInvalid as error:
        raise ServerNotFound(f"{error}, or set GPUPACK_SERVER and GPUPACK_TOKEN") from error


def _require_no_impersonation(target: Target) -> None:
    if user := dict(target.impersonation).get("Impersonate-User"):
        raise ServerNotFound(
            f"the kubeconfig impersonates {user!r} (as), which the REST API does not support; "
            f"{SET_TOKEN}"
        )


def _presented(credentials: Credentials) -> Presented:
    try:
        return credentials.get()
    except NoCredentials as error:
        raise ServerNotFound(f"{error}; or {SET_TOKEN}") from error


def _renewed(credentials: Credentials, used: Presented) -> bool:
    try:
        return credentials.renew(used)
    except NoCredentials as error:
        raise ServerNotFound(f"{error}; or {SET_TOKEN}") from error


def _load_certificate(trusted: ssl.SSLContext, presented: Presented) -> None:
    try:
        tls.show(trusted, presented)
    except NoCredentials as error:
        raise ServerNotFound(f"the kubeconfig: {error}") from error
