# SPDX-License-Identifier: Apache-2.0
"""The ways to sign in that a kubeconfig's user names, in kubectl's order.

    token and tokenFile ─► username and password ─► auth-provider, exec
    client certificate: presented as well; where there is one, exec is not run

Pure: files are named here and read in `credentials`.
"""

import base64
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpupack_kubeclient.kubeconfig import exec_command, fields, impersonation
from gpupack_kubeclient.kubeconfig.exec_command import Command
from gpupack_kubeclient.kubeconfig.fields import AuthProvider, User

OIDC: Final = "oidc"
"""The one provider that is still built into kubectl."""


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A token in the kubeconfig."""

    token: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class TokenFile:
    """A file with a token, which others renew; `first` is valid until it can be read."""

    path: Path
    first: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Password:
    """A name and a password."""

    name: str
    password: str = dataclasses.field(repr=False)

    @property
    def authorization(self) -> str:
        """The value of the header."""
        pair = f"{self.name}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


@dataclasses.dataclass(frozen=True, slots=True)
class IdToken:
    """The ID token that kubectl stores in the kubeconfig and renews; `read` reads it again."""

    read: Callable[[], str]


@dataclasses.dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate; a path names a file that other programs renew."""

    certificate: bytes | Path
    key: bytes | Path = dataclasses.field(repr=False)


Bearer = Token | TokenFile | Password | IdToken | Command


@dataclasses.dataclass(frozen=True, slots=True)
class SignIn:
    """The credentials of a request: a header, a certificate, both or neither."""

    bearer: Bearer | None = None
    certificate: Certificate | None = None

    @property
    def uses_files(self) -> bool:
        """Whether a part of it is in files that other programs renew."""
        pair = self.certificate
        parts = () if pair is None else (pair.certificate, pair.key)
        return isinstance(self.bearer, TokenFile) or any(isinstance(each, Path) for each in parts)


def of_user(
    user: User,
    *,
    environ: Mapping[str, str],
    cluster: Mapping[str, Any],
    id_token: Callable[[], str],
) -> SignIn:
    """Return the ways that apply; call `problems_of` first for what is wrong with them."""
    certificate = _certificate(user)
    if user.token_file:
        return SignIn(TokenFile(Path(user.token_file), user.token or ""), certificate)
    if user.token:
        return SignIn(Token(user.token), certificate)
    if user.username or user.password:
        return SignIn(Password(user.username or "", user.password or ""), certificate)
    if user.auth_provider is not None:
        return SignIn(IdToken(id_token), certificate)
    if user.exec is not None and certificate is None:
        return SignIn(Command(user.exec, environ, cluster))
    return SignIn(None, certificate)


def problems_of(user: User) -> Iterator[str]:
    """Yield what is wrong with a user's fields."""
    if user.token and (user.username or user.password):
        yield "token and username stand there both; leave one out"
    if user.client_certificate and user.client_certificate_data:
        yield "client-certificate and client-certificate-data stand there both; leave one out"
    if user.client_certificate or user.client_certificate_data:
        if user.client_key and user.client_key_data:
            yield "client-key and client-key-data stand there both; leave one out"
        if not (user.client_key or user.client_key_data):
            yield "a client certificate stands there without client-key or client-key-data"
    if user.exec is not None:
        if user.auth_provider is not None:
            yield "auth-provider and exec stand there both; leave one out"
        yield from exec_command.problems_of(user.exec)
    if user.auth_provider is not None:
        yield from _problems_of_provider(user.auth_provider)
    if problem := impersonation.problem_of(user):
        yield problem


def _problems_of_provider(provider: AuthProvider) -> Iterator[str]:
    if provider.name != OIDC:
        yield (
            f"auth-provider: {provider.name!r} is no way to sign in any more; use the credential "
            "command (exec) of your cloud"
        )
    elif not (provider.config or {}).get("id-token"):
        yield (
            "auth-provider oidc has no id-token: kubectl fetches one, gpupack uses what is there; "
            "run a kubectl command first, or use a credential command (exec)"
        )


def _certificate(user: User) -> Certificate | None:
    if not (user.client_certificate or user.client_certificate_data):
        return None
    return Certificate(
        _part(user.client_certificate, user.client_certificate_data, "client-certificate-data"),
        _part(user.client_key, user.client_key_data, "client-key-data"),
    )


def _part(path: str | None, data: str | None, name: str) -> bytes | Path:
    """Return the data, or else the path; raises KubeconfigUnreadable."""
    return fields.decoded(data, name) if data else Path(path or "")
