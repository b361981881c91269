# SPDX-License-Identifier: Apache-2.0
"""Callers with client certificates of the cluster's client CA, as for its API server.

    ConfigMap kube-system/extension-apiserver-authentication, client-ca-file
        └► a TLS context that asks for a certificate of it ──► each handshake
                                                                  │ the holder has the key
    a call ──► opened by the current context? valid now? ──► CN and O's as user and groups

TLS proves that the caller holds the certificate's key, which no header can prove. Therefore no
header is read, neither an aggregator's (X-Remote-User) nor a proxy's. A caller behind a proxy that
terminates TLS presents no certificate.

Kubernetes revokes no certificate: one is valid until it expires, or its CA is removed from the
ConfigMap. Both also end the permissions of open connections, including streams. For the same reason
a TLS session is never resumed: a ticket would be valid for longer than either.
"""

import asyncio
import datetime as dt
import hashlib
import http
import logging
import ssl
import time
import weakref
from collections.abc import Callable
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier

from gpupack_httpserver.certificate import ServedCertificate, ServerFiles, tls_context
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.user import User
from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import KubeError, NotFound
from gpupack_kubeclient.resources import Resource

log = logging.getLogger(__name__)

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"
"""Where the API server publishes its CAs for clients; intended for aggregated API servers."""
KEY: Final = "client-ca-file"

LOOK_SECONDS: Final = 60.0
"""Seconds for which a removed CA may still count."""
AGAIN_SECONDS: Final = 10.0
"""Seconds until the next try after a read without an answer."""

MAX_BYTES: Final = 16 << 10
"""Maximum size of a certificate: its names are part of each cached permission of its holder."""

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
ANONYMOUS: Final = "system:anonymous"
CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"


class PeerCertificate(NamedTuple):
    """The certificate that a caller presented in its handshake; the caller holds its key."""

    der: bytes
    context: ssl.SSLContext
    """Context with which the connection was opened; it identifies the CAs at that time."""


class AuthenticationConfig(objects.Object, frozen=True):
    """The ConfigMap with the API server's settings for authentication."""

    data: dict[str, str] = {}


AUTHENTICATION_CONFIGS: Final = Resource("/api/v1", "configmaps", AuthenticationConfig)


class ClientCertificates:
    """The identities of callers by their certificates.

    Until the CA is known, and where the cluster has none, no certificate is requested.

    Args:
        api: the API server from which the ConfigMap is read.
        files: certificate of the server that callers connect to.
        now: the time by which certificates are valid.
        clock: returns monotonic seconds.

    Raises:
        OSError: a file of the server's cannot be read, or is not a certificate or key.
        ValueError: a file of the server's is not a certificate.
    """

    def __init__(
        self,
        api: Api,
        files: ServerFiles,
        *,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._now = api, now
        self._authority = ""
        self._authorities = weakref.WeakKeyDictionary[ssl.SSLContext, str]()
        """CAs of each context with which connections are open."""
        self._served = ServedCertificate(files, bare=self._context, clock=clock)

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        return self._served.context()

    async def run(self) -> None:
        """Read the ConfigMap repeatedly, without end."""
        while True:
            seconds = LOOK_SECONDS
            try:
                self.trust(await self._published())
            except KubeError as error:
                seconds = AGAIN_SECONDS
                log.warning("the client CA cannot be read, the last one counts: %s", error)
            await asyncio.sleep(seconds)

    def trust(self, authority: str) -> None:
        """Accept certificates of these CAs from now on, and none that was presented before.

        Invalid content changes nothing and is logged.

        Args:
            authority: certificates (PEM); empty: no certificate is accepted.
        """
        if authority == self._authority:
            return
        try:
            _asking_for(authority)
        except (OSError, ValueError) as error:
            log.error(  # noqa: TRY400 - no bug
                "%s/%s: %s cannot be used, the last one counts: %s", NAMESPACE, NAME, KEY, error
            )
            return
        self._authority = authority
        self._served.replace_context()
        present = "another" if authority else "none"
        log.info("the cluster's client CA is %s from now on", present)

    def user(self, shown: PeerCertificate) -> User:
        """Return the user of a certificate, by the API server's rules.

        Raises:
            Denied: the certificate is not valid now, or names no user.
        """
        if self._authorities.get(shown.context) != self._authority:
            raise _unknown("the cluster's client CA has changed in the meantime; connect again")
        if len(shown.der) > MAX_BYTES:
            raise _unknown(f"the client certificate has more than {MAX_BYTES} bytes")
        try:
            certificate = x509.load_der_x509_certificate(shown.der)
            begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
            names = _values(certificate, NameOID.COMMON_NAME)
            groups = _values(certificate, NameOID.ORGANIZATION_NAME)
        except ValueError as error:
            raise _unknown(f"the client certificate cannot be read: {error}") from error
        if not begins <= self._now() <= ends:
            raise _unknown(
                f"the client certificate is good from {begins:%FT%TZ} to {ends:%FT%TZ}; get another"
            )
        if not names or not names[-1]:
            raise _unknown("the client certificate has no common name (CN), which is the user's")
        digest = hashlib.sha256(shown.der).hexdigest()
        return User(
            username=names[-1],
            groups=_with_authenticated(names[-1], groups),
            extra={CREDENTIAL_ID: (f"X509SHA256={digest}",)},
        )

    def _context(self) -> ssl.SSLContext:
        context = _asking_for(self._authority)
        self._authorities[context] = self._authority
        return context

    async def _published(self) -> str:
        """Return the published CA; empty: there is none."""
        try:
            found = await self._api.get(AUTHENTICATION_CONFIGS, NAME, namespace=NAMESPACE)
        except NotFound:
            return ""
        return found.data.get(KEY, "")


def _asking_for(authority: str) -> ssl.SSLContext:
    """Return a context for TLS 1.3 only, in which certificates are sent encrypted.

    A certificate of any other CA ends the handshake; event loops do not report the reason to the
    caller.
    """
    context = tls_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    if authority:
        # Comments between certificates may be in any script; OpenSSL skips them.
        ascii_alone = authority.encode("ascii", errors="replace").decode("ascii")
        context.load_verify_locations(cadata=ascii_alone)
        # An intermediate CA may be in the ConfigMap without its root, as for the API server.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _values(certificate: x509.Certificate, kind: ObjectIdentifier) -> list[str]:
    return [str(each.value) for each in certificate.subject.get_attributes_for_oid(kind)]


def _with_authenticated(name: str, groups: list[str]) -> tuple[str, ...]:
    """Add the group of authenticated users, by the API server's rule."""
    has_one = {AUTHENTICATED, UNAUTHENTICATED} & {*groups}
    more = () if name == ANONYMOUS or has_one else (AUTHENTICATED,)
    return (*groups, *more)


def _unknown(message: str) -> Denied:
    return Denied(message, status=http.HTTPStatus.UNAUTHORIZED)
