# SPDX-License-Identifier: Apache-2.0
"""The headers with which a request impersonates another user (`as` and related fields)."""

from collections.abc import Iterator
from typing import Final

from gpupack_kubeclient.kubeconfig.fields import User

Headers = tuple[tuple[str, str], ...]

_TOKEN: Final = frozenset(
    b"!#$&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)
"""Bytes that a header's name may have, without the percent sign that escapes the others."""


def headers_of(user: User) -> Headers:
    """Return the headers; none where no user is impersonated."""
    return tuple(_headers(user)) if user.as_user else ()


def problem_of(user: User) -> str:
    """Return what is wrong with the fields; empty: nothing."""
    more = user.as_uid or user.as_groups or user.as_user_extra
    if more and not user.as_user:
        return "as-uid, as-groups or as-user-extra stands there without as"
    values = [value for _, value in headers_of(user)]
    if any(not value.isprintable() for value in values):
        return "as, as-uid, as-groups or as-user-extra has a control character"
    return ""


def _headers(user: User) -> Iterator[tuple[str, str]]:
    yield "Impersonate-User", user.as_user or ""
    if user.as_uid:
        yield "Impersonate-Uid", user.as_uid
    for group in user.as_groups or ():
        yield "Impersonate-Group", group
    for name, values in (user.as_user_extra or {}).items():
        for value in values or ():
            yield f"Impersonate-Extra-{_escaped(name)}", value


def _escaped(name: str) -> str:
    return "".join(
        chr(byte) if byte in _TOKEN else f"%{byte:02X}" for byte in name.encode(errors="replace")
    )
