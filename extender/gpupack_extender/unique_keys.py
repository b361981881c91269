# SPDX-License-Identifier: Apache-2.0
"""Refusal of JSON in which an object has a key twice.

Readers differ in which of the two values they use, so such a call has no definite meaning. msgspec
silently uses the last one and has no hook; the standard library has one, which is slow. So node
names, which contain no keys, are left out, and the hook is used only if msgspec does not write the
body again unchanged: if nothing is lost, no key was there twice.
"""

import collections
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from gpupack_extender.call_body import CallBody
from gpupack_extender.errors import CallInvalid

_SHOWN: Final = 80


def require_unique_keys(body: CallBody, known: Sequence[str]) -> None:
    """Refuse a body that has a key twice, at any depth.

    Keys are compared exactly, as in Kubernetes: labels may differ only by case. A key of the
    message itself is refused only if Go would take it for one of `known` in different case.

    Args:
        body: JSON that msgspec has decoded.
        known: the outermost object's keys that are read.

    Raises:
        CallInvalid: the message names the key.
        CallTooLarge: what has to be read for this exceeds the limit.
    """
    spelled = {key.lower(): key for key in known}
    for key in _scanned(body):
        right = spelled.get(key.lower(), key)
        if key != right:
            raise CallInvalid(f"key {key[:_SHOWN]!r} must be spelled {right!r}")


def _scanned(body: CallBody) -> Iterable[str]:
    try:
        return _outermost(body.without_names)
    except (msgspec.DecodeError, json.JSONDecodeError):
        undivided = CallBody(body.whole, body.whole)
        undivided.require_bounded()
        return _outermost(undivided.without_names)


def _outermost(body: bytes) -> Iterable[str]:
    """Return the keys of the outermost object."""
    decoded: dict[str, Any] = msgspec.json.decode(body, type=dict)
    if msgspec.json.encode(decoded) != body:
        json.loads(body.decode(), object_pairs_hook=_judge, parse_int=str, parse_float=str)
    return decoded


def _judge(pairs: Sequence[tuple[str, Any]]) -> None:
    """Check one object; nothing of it is kept."""
    if len(pairs) > 1 and len(dict(pairs)) != len(pairs):
        raise CallInvalid(f"key {_twice(pairs)[:_SHOWN]!r} stands twice in one object")


def _twice(pairs: Sequence[tuple[str, Any]]) -> str:
    counts = collections.Counter(key for key, _ in pairs)
    return next(key for key, count in counts.items() if count > 1)
