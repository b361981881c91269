# SPDX-License-Identifier: Apache-2.0
"""Access control: callers with the token; without a token, all callers of this machine.

A server without a token listens on loopback only. Health checks need no token, since
the kubelet has none.
"""

import hmac
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.inference_server.protocol import Refused, refusal

TOKEN_VARIABLE: Final = "INFERENCE_TOKEN"  # noqa: S105  a name
MIN_CHARACTERS: Final = 32
OPEN: Final = frozenset({"/healthz", "/readyz"})


def token_from(file: Path | None, environ: Mapping[str, str]) -> str | None:
    """Return the token of a file, else of INFERENCE_TOKEN; None where there is none.

    Raises:
        BadArgument: it cannot be read, or is too short to be a secret.
    """
    if file is not None:
        try:
            text, source = file.read_text(), str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise BadArgument(f"the token's file {file} cannot be read: {error}") from error
    elif TOKEN_VARIABLE in environ:
        text, source = environ[TOKEN_VARIABLE], TOKEN_VARIABLE
    else:
        return None
    token = text.strip()
    if len(token) < MIN_CHARACTERS or not token.isascii() or not token.isprintable():
        raise BadArgument(
            f"{source} holds no token of {MIN_CHARACTERS} printable characters or more: make one"
            " with `openssl rand -hex 32`"
        )
    return token


def require_reachable_by_few(host: str, token: str | None) -> None:
    """Refuse to listen where others can call, without a token.

    Raises:
        BadArgument: so, or the address is not valid.
    """
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError as error:
        raise BadArgument(f"--host {host!r} is no IP address and not localhost") from error
    if not loopback and token is None:
        raise BadArgument(
            f"--host {host} can be reached from other machines: name a file with a token in"
            f" --token-file, or set {TOKEN_VARIABLE}"
        )


class Authenticated:
    """An application that only callers with the token can reach."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a call through, or refuse it."""
        if scope["type"] != "http" or scope["path"] in OPEN or self._is_shown(scope):
            await self._app(scope, receive, send)
            return
        refused = Refused(
            401,
            "show this server's token, as in `Authorization: Bearer TOKEN`",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal(refused)(scope, receive, send)

    def _is_shown(self, scope: Scope) -> bool:
        if self._expected is None:
            return True
        shown = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(shown) == 1 and hmac.compare_digest(shown[0], self._expected)
