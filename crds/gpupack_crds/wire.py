# SPDX-License-Identifier: Apache-2.0
"""How fields are spelled on the wire, and the rules that CRDs carry."""

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
        message: what a user reads when it does not hold: what is wrong and what to write instead.
        field_path: the field the message is about, such as `.share`.
        said: CEL that makes the message of the value; `message` is for where it cannot.
    """

    cel: str
    message: str
    field_path: str = ""
    said: str = ""

    def as_schema(self) -> dict[str, str]:
        """Write the rule as the API server reads it."""
        rule = {"rule": self.cel, "message": self.message}
        rule |= {"messageExpression": self.said} if self.said else {}
        return rule | ({"fieldPath": self.field_path} if self.field_path else {})


class Wire(msgspec.Struct, rename=wire_name, omit_defaults=True, kw_only=True, frozen=True):
    """Base of every type of the API group.

    Decoding skips unknown fields, so that a newer API server can be talked to; the CRD's schema is
    what refuses them.
    """

    rules: ClassVar[tuple[Rule, ...]] = ()


def described(text: str, **limits: Any) -> Meta:
    """Describe a field for `kubectl explain`, with limits such as `ge`, `max_length`.

    Keywords in the wire's own spelling that msgspec does not know (`format`, `default`, CRD
    extensions) go into `schema`.
    """
    schema = limits.pop("schema", None)
    return Meta(description=text, extra_json_schema=schema, **limits)


def stored_bytes(value: Any) -> int:
    """What a value takes in etcd: Go writes `<`, `>` and `&` with six bytes each."""
    written = msgspec.json.encode(value)
    return len(written) + 5 * sum(map(written.count, (b"<", b">", b"&")))


def ruled(*rules: Rule) -> dict[str, Any]:
    """The schema of a field whose form CEL rules judge.

    The API server's own messages for a wrong form are a regular expression, or a type and a
    second line about rules that were not checked. A CRD has neither `pattern` nor `type` where
    there is a rule.
    """
    return {"x-kubernetes-validations": [each.as_schema() for each in rules]}


INT_OR_STRING = {"x-kubernetes-int-or-string": True}
"""Lets a string come as far as the rules, which refuse it in a sentence."""

FORMER = Meta(extra_json_schema={"deprecated": True})
"""Marks what a field was in an earlier version: it is read, never written, and not in the CRD."""

Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A moment as Kubernetes' metav1.Time: `2026-11-21T05:24:00Z`."""
