# SPDX-License-Identifier: Apache-2.0
"""Conversion of msgspec types to the structural schemas of CRDs.

msgspec writes JSON Schema with references, `anyOf` for optional fields, and titles. A CRD needs one
inlined tree without them, with the CEL rules of each type next to its fields.
"""

from typing import Any

import msgspec

from gpupack_crds.wire import Wire

Schema = dict[str, Any]

_DROPPED = {"title", "additionalProperties"}


def structural(kind: type[Wire]) -> Schema:
    """Return the structural schema of a type, with references inlined and rules attached."""
    (top,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    return _inline(top, components, _rules(kind))


def _rules(kind: type[Wire]) -> dict[str, list[dict[str, str]]]:
    """Return the CEL rules of every Wire type, by type name."""
    found: dict[str, list[dict[str, str]]] = {}
    pending: list[type[Wire]] = [Wire]
    while pending:
        base = pending.pop()
        pending += base.__subclasses__()
        found[base.__name__] = [rule.as_schema() for rule in base.rules]
    return found | {kind.__name__: [rule.as_schema() for rule in kind.rules]}


def _inline(node: Schema, components: dict[str, Schema], rules: dict[str, Any]) -> Schema:
    if "$ref" in node:
        name = node["$ref"]
        target = _inline(components[name], components, rules)
        rest = {key: value for key, value in node.items() if key not in {"$ref", "default"}}
        attached = {"x-kubernetes-validations": rules[name]} if rules.get(name) else {}
        return target | rest | attached
    if "anyOf" in node:
        return _optional(node, components, rules)
    judged = _judged_by_rules(node)
    built = {
        key: _value(key, value, components, rules)
        for key, value in node.items()
        if _kept(key, value) and key not in judged
    }
    return {"type": "string"} | built if "enum" in built else built


def _optional(node: Schema, components: dict[str, Schema], rules: dict[str, Any]) -> Schema:
    """Inline `X | None` as an optional field; null is never written, nor a `wire.FORMER` type."""
    choices = [
        choice
        for choice in node["anyOf"]
        if choice != {"type": "null"} and not choice.get("deprecated")
    ]
    if len(choices) != 1:
        raise TypeError(f"a structural schema cannot hold a choice: {node}")
    rest = {key: value for key, value in node.items() if key not in {"anyOf", "default"}}
    return _inline(choices[0], components, rules) | rest


def _judged_by_rules(node: Schema) -> frozenset[str]:
    """Return the keys that a field's own rules replace with a message in words."""
    named = {"pattern"} if "x-kubernetes-validations" in node else set()
    return frozenset(named | ({"type"} if "x-kubernetes-int-or-string" in node else set()))


def _kept(key: str, value: Any) -> bool:
    if key == "additionalProperties":
        return isinstance(value, dict) and bool(value)
    empty = value is None or (not value and isinstance(value, (str, list, tuple, dict)))
    return key not in _DROPPED and not (key in {"default", "required"} and empty)


def _value(key: str, value: Any, components: dict[str, Schema], rules: dict[str, Any]) -> Any:
    if key == "properties":
        return {name: _inline(field, components, rules) for name, field in value.items()}
    if key in {"items", "additionalProperties"}:
        return _inline(value, components, rules)
    if key == "description":
        return " ".join(value.split())
    return value
