# SPDX-License-Identifier: Apache-2.0
"""The credentials that requests present now: read, issued and renewed when due.

Files are read again once a minute; while they cannot be read, the last content stays valid. A
command runs when the credentials that it issued have expired, or when the server rejects them.
Thread-safe: one command runs at a time.
"""

import base64
import binascii
import dataclasses
import datetime as dt
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from gpupack_kubeclient.kubeconfig import exec_command, tls
from gpupack_kubeclient.kubeconfig.exec_command import Command
from gpupack_kubeclient.kubeconfig.presented import NOTHING, NoCredentials, Presented
from gpupack_kubeclient.kubeconfig.sign_in import (
    Certificate,
    IdToken,
    Password,
    SignIn,
    Token,
    TokenFile,
)

FILE_SECONDS: Final = 60.0
"""Seconds after which a file is read again: the kubelet replaces a token well before it expires."""


FAILED_SECONDS: Final = 10.0
"""Seconds before a failed command runs again: a command that follows a log asks each second."""


class Source(Protocol):
    """One way to sign in. All methods raise NoCredentials, and may block."""

    def kept(self) -> Presented | None:
        """Return the current valid credentials; None: they are due. Does not block."""

    def get(self) -> Presented:
        """Return valid credentials, read or issued again where they are due."""

    def renew(self) -> bool:
        """Read or issue credentials again that the server rejects; return whether they changed."""


class Credentials:
    """All credentials of one connection's requests.

    Args:
        sign_in: source of the credentials.
    """

    def __init__(self, sign_in: SignIn) -> None:
        self._bearer = _source(sign_in.bearer)
        certificate = sign_in.certificate
        self._certificate: Source = (
            Fixed(NOTHING) if certificate is None else FromFiles(lambda: _pair(certificate))
        )
        self._turn = threading.Lock()

    def kept(self) -> Presented | None:
        """Return the current credentials; None: some are due, and `get` may block.

        Does not block.
        """
        bearer, certificate = self._bearer.kept(), self._certificate.kept()
        return None if bearer is None or certificate is None else _both(bearer, certificate)

    def get(self) -> Presented:
        """Return the credentials of a request now; raises NoCredentials."""
        with self._turn:
            return _both(self._bearer.get(), self._certificate.get())

    def renew(self, used: Presented) -> bool:
        """Return whether there are other credentials than `used`, which the server rejected.

        Raises:
            NoCredentials: there are none.
        """
        with self._turn:
            if _both(self._bearer.get(), self._certificate.get()) != used:
                return True
            # Files come first: a command may prompt the user.
            return self._certificate.renew() or self._bearer.renew()


class Fixed:
    """Credentials that are part of the kubeconfig."""

    def __init__(self, presented: Presented) -> None:
        self._presented = presented

    def kept(self) -> Presented | None:
        """Return the credentials."""
        return self._presented

    def get(self) -> Presented:
        """Return the credentials."""
        return self._presented

    def renew(self) -> bool:
        """Return False: the credentials do not change."""
        return False


class FromFiles:
    """Credentials in files that other programs renew.

    Args:
        read: raises OSError where a file cannot be read, NoCredentials where it holds none.
        first: valid until the files can be read; None: the files have to be readable.
    """

    def __init__(self, read: Callable[[], Presented], first: Presented | None = None) -> None:
        self._read, self._found = read, first
        self._read_at = -FILE_SECONDS

    def kept(self) -> Presented | None:
        """Return the credentials that were read less than a minute ago."""
        due = time.monotonic() - self._read_at >= FILE_SECONDS
        return None if due else self._found

    def get(self) -> Presented:
        """Return the credentials, read again where they are due."""
        found = self.kept()
        return self._again() if found is None else found

    def renew(self) -> bool:
        """Return whether the files hold other credentials now."""
        before = self._found
        return self._again() != before

    def _again(self) -> Presented:
        try:
            self._found = self._read()
        except (OSError, NoCredentials) as error:
            if self._found is None:
                raise NoCredentials(f"credentials cannot be read: {error}") from error
        self._read_at = time.monotonic()
        return self._found


class Issued:
    """Credentials that expire and are issued again.

    Args:
        issue: issues credentials; raises NoCredentials.
    """

    def __init__(self, issue: Callable[[], Presented]) -> None:
        self._issue = issue
        self._found: Presented | None = None
        self._failed: NoCredentials | None = None
        self._failed_at = 0.0

    def kept(self) -> Presented | None:
        """Return the credentials until they expire."""
        found = self._found
        ended = found is not None and found.until is not None and found.until <= _now()
        return None if ended else found

    def get(self) -> Presented:
        """Return the credentials, issued again where they have expired."""
        found = self.kept()
        return self._again() if found is None else found

    def renew(self) -> bool:
        """Issue credentials again; return whether they differ in more than their expiry."""
        before = self._found
        found = dataclasses.replace(self._again(), until=None)
        return before is None or found != dataclasses.replace(before, until=None)

    def _again(self) -> Presented:
        if self._failed is not None and time.monotonic() - self._failed_at < FAILED_SECONDS:
            raise self._failed
        try:
            self._found = self._issue()
        except NoCredentials as error:
            self._failed, self._failed_at = error, time.monotonic()
            raise
        self._failed = None
        return self._found


def _source(bearer: object) -> Source:
    match bearer:
        case Token(token):
            return Fixed(Presented(authorization=f"Bearer {token}"))
        case TokenFile(path, first):
            kept = Presented(authorization=f"Bearer {first}") if first else None
            return FromFiles(lambda: _token_of(path), kept)
        case Password():
            return Fixed(Presented(authorization=bearer.authorization))
        case IdToken(read):
            return Issued(lambda: _id_token(read()))
        case Command():
            return Issued(lambda: exec_command.issued(bearer))
        case _:
            return Fixed(NOTHING)


def _both(bearer: Presented, certificate: Presented) -> Presented:
    """Combine both; without a certificate from files, `bearer` may hold one from a command."""
    if not certificate.certificate:
        return bearer
    return dataclasses.replace(bearer, certificate=certificate.certificate, key=certificate.key)


def _token_of(path: Path) -> Presented:
    token = path.read_text().strip()
    if not token:
        raise NoCredentials(f"{path} is empty; it has to hold a token")
    return Presented(authorization=f"Bearer {token}")


def _pair(certificate: Certificate) -> Presented:
    """Read both files; raises NoCredentials where only one of them is replaced yet."""
    pair = Presented(certificate=_content(certificate.certificate), key=_content(certificate.key))
    tls.show(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pair)
    return pair


def _content(part: bytes | Path) -> bytes:
    return part.read_bytes() if isinstance(part, Path) else part


class _Claims(msgspec.Struct):
    exp: float


def _id_token(token: str) -> Presented:
    """Return an ID token that kubectl stores; raises NoCredentials where it has expired."""
    try:
        part = token.split(".")[1]
        claims = msgspec.json.decode(
            base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=_Claims
        )
        until = dt.datetime.fromtimestamp(claims.exp, dt.UTC)
    except (IndexError, ValueError, OverflowError, OSError, binascii.Error) as error:
        raise NoCredentials(f"the id-token of auth-provider oidc is none: {error}") from error
    if until <= _now():
        raise NoCredentials(
            f"the id-token of auth-provider oidc ended at {until:%Y-%m-%dT%H:%M:%SZ}, and gpupack "
            "does not renew it; run any kubectl command, which does, or use a credential command "
            "(exec)"
        )
    return Presented(authorization=f"Bearer {token}", until=until)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
