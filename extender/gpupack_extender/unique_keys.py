# SPDX-License-Identifier: Apache-2.0
"""Refusal of JSON in which an object has a key twice.

Readers differ in which of the two values they use, so such a call has no definite meaning. msgspec
silently uses the last one and has no hook; the standard library has one, which is slow. So node
names, which contain no keys, are removed first, and the hook is used only if msgspec does not write
the body again unchanged: if nothing is lost, no key was there twice.
"""

import collections
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from gpupack_extender.errors import CallInvalid, CallTooLarge
from gpupack_extender.wire import NodeNames
from gpupack_placement import NodeName

SCANNED_BYTES: Final = 2 << 20
"""More than the largest object that etcd accepts. Parsed, JSON can take thirty times its size."""

_NAMES: Final = b',"NodeNames":['
_SHOWN: Final = 80


def require_unique_keys(body: bytes, known: Sequence[str]) -> None:
    """Refuse a body that has a key twice, at any depth.

    Keys are compared exactly, as in Kubernetes: labels may differ only by case. A key of the
    message itself is refused only if Go would take it for one of `known` in different case.

    Args:
        body: JSON that msgspec has decoded.
        known: the outermost object's keys that are read.

    Raises:
        CallInvalid: the message names the key.
        CallTooLarge: without the node names the body is larger than SCANNED_BYTES.
    """
    spelled = {key.lower(): key for key in known}
    for key in _scanned(body):
        right = spelled.get(key.lower(), key)
        if key != right:
            raise CallInvalid(f"key {key[:_SHOWN]!r} must be spelled {right!r}")


def _scanned(body: bytes) -> Iterable[str]:
    try:
        return _outermost(without_names(body))
    except (msgspec.DecodeError, json.JSONDecodeError):
        return _outermost(body)


def without_names(body: bytes) -> bytes:
    """Return kube-scheduler's body without its node names, which come last.

    The removed part contains no colon, so no key. If the result is JSON, the removed part was an
    array of the outermost object: the brackets that end the result are those that ended the body.
    """
    start = body.find(_NAMES) + len(_NAMES)
    if start < len(_NAMES) or not body.endswith(b"]}") or body.find(b":", start) >= 0:
        return body
    return body[:start] + b"]}"


def size_without_names(body: bytes) -> int:
    """Return the size in bytes: in a call of kube-scheduler, the size of the pod."""
    return len(without_names(body))


def node_names(body: bytes) -> list[NodeName] | None:
    """Return only the node names of kube-scheduler's body; None: the body has another form."""
    cut = without_names(body)
    if not cut.endswith(_NAMES + b"]}"):
        return None
    try:
        return msgspec.json.decode(body[len(cut) - len(b"[]}") : -1], type=NodeNames)
    except msgspec.MsgspecError:
        return None


def require_bounded(size: int) -> None:
    """Refuse a body that would take too much memory when it is decoded.

    Args:
        size: size of the body without the node names, in bytes.

    Raises:
        CallTooLarge: the size exceeds SCANNED_BYTES.
    """
    if size > SCANNED_BYTES:
        raise CallTooLarge(
            f"apart from NodeNames the body has {size} bytes; at most {SCANNED_BYTES} are read"
        )


def _outermost(body: bytes) -> Iterable[str]:
    """Return the keys of the outermost object."""
    require_bounded(len(body))
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
