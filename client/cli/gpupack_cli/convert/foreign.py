# SPDX-License-Identifier: Apache-2.0
"""Base of the types of other projects' objects: they declare the fields that a conversion reads.

A field that no type declares is reported, so that none is lost silently.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from gpupack_cli.convert.report import NotConverted, Report
from gpupack_kubeclient.objects import Json

F = TypeVar("F", bound="Foreign")

UNKNOWN: Final = "the conversion does not know this field; check whether the GPUJob needs it"

SERVER_FIELDS: Final = frozenset({"status"})
"""Fields that the API server or a controller writes: they are no part of a request."""


class Foreign(msgspec.Struct, rename="camel", frozen=True):
    """A part of another project's object."""


def parse(json: Json, kind: type[F], report: Report, *, path: str = "") -> F:
    """Return an object in its type, and report the fields that the type does not declare.

    Raises:
        NotConverted: a field has another type than the kind's own API permits.
    """
    try:
        parsed = msgspec.convert(json, kind, strict=False)
    except msgspec.ValidationError as error:
        raise NotConverted(path or "manifest", None, f"the manifest is invalid: {error}") from error
    for unread, value in _unread(json, inspect.type_info(kind), path):
        report.dropped(unread, value, UNKNOWN)
    return parsed


def _unread(value: Any, kind: inspect.Type, path: str) -> Iterator[tuple[str, Any]]:
    match kind:
        case inspect.UnionType():
            for each in kind.types:
                yield from _unread(value, each, path)
        case inspect.StructType() if isinstance(value, dict):
            yield from _unread_fields(value, kind, path)
        case inspect.VarTupleType() if isinstance(value, list):
            for number, inner in enumerate(value):
                yield from _unread(inner, kind.item_type, f"{path}[{number}]")
        case inspect.DictType() if isinstance(value, dict):
            for name, inner in value.items():
                yield from _unread(inner, kind.value_type, f"{path}.{name}")
        case _:
            return


def _unread_fields(value: Json, kind: inspect.StructType, path: str) -> Iterator[tuple[str, Any]]:
    known = {field.encode_name: field.type for field in kind.fields}
    for name, inner in value.items():
        below = f"{path}.{name}" if path else name
        if name in known:
            yield from _unread(inner, known[name], below)
        elif path or name not in {"apiVersion", "kind", *SERVER_FIELDS}:
            yield below, inner
