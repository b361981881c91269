# SPDX-License-Identifier: Apache-2.0
"""The values that a call accepts, from the types of its parameters, in words."""

import re
from typing import Any, Final

from litestar import Request
from msgspec import inspect

Call = Request[Any, Any, Any]

MAX_CHARACTERS: Final = 128
"""Maximum characters of a value in an answer."""

PARSED_BODY: Final = "given_body"
"""Key of the call's state for its parsed body."""

BODY: Final = "data"
"""Litestar's name of the body's parameter."""

_STEPS: Final = re.compile(r"[^.\[\]]+")

_EXPECTED: Final = re.compile(
    r"^Expected `(?P<kind>\w+)(?: \| null)?`"
    r"(?: (?P<sign>[<>]=?) (?P<limit>\S+)| of length (?P<of>[<>]=) (?P<length>\d+))?"
    r"(?:, got `[^`]*`)?$"
)
"""A violated type or limit, in the words of msgspec."""

_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a JSON object",
    "array": "a list",
}
_LIMITS: Final = {">=": "of at least", "<=": "of at most", ">": "greater than", "<": "less than"}


def in_words(text: str) -> str:
    """Return msgspec's text about a type or a limit in words for callers; empty: it is another."""
    found = _EXPECTED.match(text)
    if found is None or found["kind"] not in _KINDS:
        return ""
    kind = _KINDS[found["kind"]]
    if found["of"]:
        return f"{kind} {_LIMITS[found['of']]} {found['length']} characters"
    if found["sign"]:
        return f"{kind} {_LIMITS[found['sign']]} {found['limit'].removesuffix('.0')}"
    return kind


def value_at(call: Call, field: str, *, in_body: bool = False) -> str:
    """Return the value of a field; empty: there is none, or it is not a single value.

    A field of the body can have the name of a parameter of the path.
    """
    outside: dict[str, Any] = {}
    if not in_body and field in _parameters(call):
        outside = {**call.query_params, **call.path_params}
    found = outside[field] if field in outside else _body_value(call, field)
    shown = "" if found is None or isinstance(found, dict | list) else str(found)
    return shown[:MAX_CHARACTERS]


def choices_of(call: Call, field: str) -> list[str]:
    """Return the allowed values of a field; empty: they are not an enumeration."""
    found = _type_of(call, field)
    if isinstance(found, inspect.EnumType):
        return [str(each.value) for each in found.cls if each.value]
    return (
        [str(each) for each in found.values if each]
        if isinstance(found, inspect.LiteralType)
        else []
    )


def fields_of(call: Call, field: str) -> list[str]:
    """Return the fields of an object in the body; `data`: of the body itself."""
    found = _type_of(call, field)
    fields = found.fields if isinstance(found, inspect.StructType) else ()
    return [each.encode_name for each in fields]


def header_of(call: Call, field: str) -> str:
    """Return the name of the header that is this parameter."""
    definition = getattr(_parameters(call)[field], "kwarg_definition", None)
    return getattr(definition, "header", None) or getattr(definition, "name", None) or field


def _body_value(call: Call, field: str) -> Any:
    found = call.scope.get("state", {}).get(PARSED_BODY)
    for step in _STEPS.findall(field):
        if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            found = found.get(step) if isinstance(found, dict) else None
    return found


def _type_of(call: Call, field: str) -> inspect.Type | None:
    """Return the type of a parameter, or of a field of the body."""
    parameters = _parameters(call)
    if field != BODY and field in parameters:
        return _plain(inspect.type_info(parameters[field].annotation))
    if BODY not in parameters:
        return None
    found: inspect.Type | None = _plain(inspect.type_info(parameters[BODY].annotation))
    for step in _STEPS.findall(field) if field != BODY else ():
        found = _within(found, step)
    return found


def _parameters(call: Call) -> dict[str, Any]:
    """Return the parameters of the route handler, by name."""
    found: dict[str, Any] = call.route_handler.parsed_fn_signature.parameters
    return found


def _within(kind: inspect.Type | None, step: str) -> inspect.Type | None:
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return _plain(kind.item_type)
    fields = kind.fields if isinstance(kind, inspect.StructType) else ()
    return next((_plain(each.type) for each in fields if each.encode_name == step), None)


def _plain(kind: inspect.Type) -> inspect.Type:
    """Return the type without its metadata, and without null."""
    if isinstance(kind, inspect.Metadata):
        return _plain(kind.type)
    if isinstance(kind, inspect.UnionType):
        others = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        return _plain(others[0]) if len(others) == 1 else kind
    return kind
