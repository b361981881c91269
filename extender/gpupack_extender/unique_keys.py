# SPDX-License-Identifier: Apache-2.0
"""Refuses JSON in which an object has a key twice.

Readers differ in which of the two they believe, so such a call means nothing certain. msgspec
takes the last one silently and has no hook. The standard library has one, which costs as much as
the rest of a call where five thousand node names are parsed again; so those, which hold no keys,
are cut out first.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from gpupack_extender.errors import CallInvalid, CallTooLarge

SCANNED_BYTES: Final = 2 << 20
"""More than the largest object that etcd takes. Parsed, JSON can take thirty times its size."""

_NAMES: Final = b',"NodeNames":['
_SHOWN: Final = 80


def require_unique_keys(body: bytes, known: Sequence[str]) -> None:
    """Refuse a body that has a key twice, at any depth.

    Keys are compared exactly, as Kubernetes does: labels may differ by case alone. Only where Go
    would take a key of the message itself for one of `known` in other capitals is that refused.

    Args:
        body: JSON that msgspec has decoded.
        known: the keys of the outermost object that are read.

    Raises:
        CallInvalid: the message names the key.
        CallTooLarge: apart from the node names the body is larger than SCANNED_BYTES.
    """
    pairs = _scanned(body)
    spelled = {key.lower(): key for key in known}
    for key, _ in pairs:
        if spelled.get(key.lower(), key) != key:
            raise CallInvalid(f"key {key[:_SHOWN]!r} must be spelled {spelled[key.lower()]!r}")


def _scanned(body: bytes) -> Sequence[tuple[str, Any]]:
    try:
        return _outermost(without_names(body))
    except json.JSONDecodeError:
        return _outermost(body)


def without_names(body: bytes) -> bytes:
    """A body as kube-scheduler writes it, without its node names, which come last.

    What is cut holds no colon, so no key. Where the result is JSON, what was cut was an array of
    the outermost object: the brackets that end the result are those that ended the body.
    """
    start = body.find(_NAMES) + len(_NAMES)
    if start < len(_NAMES) or not body.endswith(b"]}") or body.find(b":", start) >= 0:
        return body
    return body[:start] + b"]}"


def _outermost(body: bytes) -> Sequence[tuple[str, Any]]:
    if len(body) > SCANNED_BYTES:
        raise CallTooLarge(
            f"apart from NodeNames the body is larger than {SCANNED_BYTES} bytes; no real call is"
        )
    objects = _Objects()
    json.loads(body.decode(), object_pairs_hook=objects.see, parse_int=str, parse_float=str)
    return objects.last


class _Objects:
    """Judges objects as they are parsed, and keeps none: the outermost comes last."""

    last: Sequence[tuple[str, Any]] = ()

    def see(self, pairs: Sequence[tuple[str, Any]]) -> None:
        if len(pairs) > 1 and len(dict(pairs)) != len(pairs):
            raise CallInvalid(f"key {_twice(pairs)[:_SHOWN]!r} stands twice in one object")
        self.last = pairs


def _twice(pairs: Sequence[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    return next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
