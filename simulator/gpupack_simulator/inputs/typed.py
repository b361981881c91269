# SPDX-License-Identifier: Apache-2.0
"""Data into typed structs, every fault with its path and line.

msgspec stops at the first fault of what it converts, so lists are converted item by item: a file
with three wrong jobs tells of all three.
"""

import re
from typing import Any, TypeVar

import msgspec

from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.yamlfile import Document

T = TypeVar("T")

_AT = re.compile(r" - at `\$\.?(.*)`$")


def fields_of(data: Any, path: str, document: Document, faults: Faults) -> dict[str, Any]:
    """The mapping that must stand here; otherwise an empty one and a fault."""
    if isinstance(data, dict):
        return data
    faults.add(document.line(path), path, f"expected named fields, got {type(data).__name__}")
    return {}


def items(
    data: Any, into: type[T], path: str, document: Document, faults: Faults
) -> list[tuple[str, T]]:
    """The items of a list that are right, each with its path."""
    if data is None:
        return []
    if not isinstance(data, list):
        faults.add(document.line(path), path, f"expected a list, got {type(data).__name__}")
        return []
    found = (
        (f"{path}[{n}]", one(item, into, f"{path}[{n}]", document, faults))
        for n, item in enumerate(data)
    )
    return [(where, value) for where, value in found if value is not None]


def one(data: Any, into: type[T], path: str, document: Document, faults: Faults) -> T | None:
    """The value, or None and a fault."""
    try:
        return msgspec.convert(data, into)
    except msgspec.ValidationError as error:
        inner = _AT.search(str(error))
        below = inner[1] if inner else ""
        where = path + below if below.startswith("[") else ".".join(filter(None, (path, below)))
        faults.add(document.line(where), where, _AT.sub("", str(error)))
        return None
