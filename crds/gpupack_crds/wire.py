# SPDX-License-Identifier: Apache-2.0
"""Spelling of fields in the API, and the rules of CRDs."""

import dataclasses
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

_SPELLED = {"mib": "MiB"}


def wire_name(field: str) -> str:
    """Spell a Python field as Kubernetes does: `memory_mib` is `memoryMiB`."""
    first, *rest = field.rstrip("_").split("_")
    return first + "".join(_SPELLED.get(part, part.capitalize()) for part in rest)


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule of a schema (`x-kubernetes-validations`).

    Attributes:
        cel: the expression, in terms of `self` and, for transitions, `oldSelf`.
        message: text for a user when the rule does not hold: what is wrong and what to write
            instead.
        field_path: the field that the message is about, such as `.share`.
        said: CEL that makes the message from the value; `message` is used where it cannot.
    """

    cel: str
    message: str
    field_path: str = ""
    said: str = ""

    def as_schema(self) -> dict[str, str]:
        """Return the rule in the API server's format."""
        rule = {"rule": self.cel, "message": self.message}
        rule |= {"messageExpression": self.said} if self.said else {}
        return rule | ({"fieldPath": self.field_path} if self.field_path else {})


class Wire(msgspec.Struct, rename=wire_name, omit_defaults=True, kw_only=True, frozen=True):
    """Base of every type of the API group.

    Decoding skips unknown fields, so that a newer API server is supported; the CRD's schema refuses
    them.
    """

    rules: ClassVar[tuple[Rule, ...]] = ()


def described(text: str, **limits: Any) -> Meta:
    """Describe a field for `kubectl explain`, with limits such as `ge`, `max_length`.

    Keywords that msgspec does not know (`format`, `default`, CRD extensions) go into `schema`, in
    the spelling of JSON Schema.
    """
    schema = limits.pop("schema", None)
    return Meta(description=text, extra_json_schema=schema, **limits)


def stored_bytes(value: Any) -> int:
    """Return the size of a value in etcd: Go writes `<`, `>` and `&` with six bytes each."""
    written = msgspec.json.encode(value)
    return len(written) + 5 * sum(map(written.count, (b"<", b">", b"&")))


def ruled(*rules: Rule) -> dict[str, Any]:
    """Return the schema of a field whose format CEL rules check.

    The API server's own message for a wrong format is a regular expression, or a type and a second
    line about rules that were not checked. A CRD has neither `pattern` nor `type` where there is a
    rule.
    """
    return {"x-kubernetes-validations": [each.as_schema() for each in rules]}


INT_OR_STRING = {"x-kubernetes-int-or-string": True}
"""Schema that lets a string reach the rules, which refuse it with a sentence."""

FORMER = Meta(extra_json_schema={"deprecated": True})
"""Mark of a field's type in an earlier version: read, never written, and not in the CRD."""

Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A time in the format of Kubernetes' metav1.Time: `2026-11-21T05:24:00Z`."""
