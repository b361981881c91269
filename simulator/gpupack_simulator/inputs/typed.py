# SPDX-License-Identifier: Apache-2.0
"""Conversion of data to typed structs, with the path and line of every fault.

msgspec stops at the first fault of a conversion, so lists are converted item by item: a file with
three wrong jobs reports all three.
"""

import re
from typing import Any, TypeVar

import msgspec

from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.yamlfile import Document

T = TypeVar("T")

_AT = re.compile(r" - at `\$\.?(.*)`$")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_ANY_KEY = "[...]"
"""Msgspec's name for a field of a mapping with arbitrary keys."""
_LONGEST = 60
"""Maximum length of a value in a message."""


def fields_of(data: Any, path: str, document: Document, faults: Faults) -> dict[str, Any]:
    """Return the mapping that is required here, or an empty one and a fault."""
    if isinstance(data, dict):
        return data
    faults.add(document.line(path), path, f"expected named fields, got {type(data).__name__}")
    return {}


def items(
    data: Any, into: type[T], path: str, document: Document, faults: Faults
) -> list[tuple[str, T]]:
    """Return the valid items of a list, each with its path."""
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
    """Return the value, or None and a fault."""
    try:
        return msgspec.convert(data, into)
    except msgspec.ValidationError as error:
        inner = _AT.search(str(error))
        below = _named(data, into, inner[1], str(error)) if inner else ""
        where = path + below if below.startswith("[") else ".".join(filter(None, (path, below)))
        message = _AT.sub("", str(error))
        faults.add(document.line(where), where, message + _more(data, into, below, message))
        return None


def _named(data: Any, into: Any, path: str, message: str) -> str:
    """Return the path with the keys that msgspec omits, found by converting each key alone."""
    while _ANY_KEY in path:
        before, _, after = path.partition(_ANY_KEY)
        steps = _steps(before)
        found = (
            key for key in _at(data, steps) if _fault_of_one(data, into, steps, key) == message
        )
        path = f"{before}.{next(found, '…')}{after}".removeprefix(".")
    return path


def _fault_of_one(data: Any, into: Any, steps: list[str | int], key: str) -> str:
    """Return the fault of a mapping with only this key."""
    try:
        msgspec.convert(_with_one(data, steps, key), into)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _with_one(data: Any, steps: list[str | int], key: str) -> Any:
    if not steps:
        return {key: data[key]}
    copied: Any = dict(data) if isinstance(data, dict) else list(data)
    copied[steps[0]] = _with_one(copied[steps[0]], steps[1:], key)
    return copied


def _steps(path: str) -> list[str | int]:
    return [int(index) if index else name for index, name in _STEP.findall(path)]


def _at(data: Any, steps: list[str | int]) -> Any:
    """Return the value at these steps; None: there is none, or a key contains dots."""
    for step in steps:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _more(data: Any, into: type[Any], path: str, message: str) -> str:
    """Return the value or the valid names, if msgspec's message lacks them."""
    value = _at(data, _steps(path))
    if isinstance(value, str | int | float):
        shown = repr(value)
        shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
        return "" if isinstance(value, str) and shown in message else f"; it is {shown}"
    if isinstance(value, dict) and not path and issubclass(into, msgspec.Struct):
        names = into.__struct_encode_fields__
        return f"; use {', '.join(names)}" if value.keys() - set(names) else ""
    return ""
