# SPDX-License-Identifier: Apache-2.0
"""The nodes that a pod may use: node selector, required node affinity, tolerations.

Any user can write these rules, so this module bounds how much of them is read. The bounds are those
of the chart's admission policies, since pods may be older than the policies.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpupack_kubeclient import objects
from gpupack_placement import Effect, NodeSelector, Operator, Requirement, TolerationOperator
from gpupack_placement import Term as PlacementTerm
from gpupack_placement import Toleration as PlacementToleration
from gpupack_scheduler.errors import RequestInvalid

MAX_CONDITIONS: Final = 512
"""Maximum of nodeSelector labels, tolerations, terms and their expressions, all together."""

MAX_VALUES: Final = 4096
"""Maximum of values in all expressions together."""

MAX_BYTES: Final = 512 << 10
"""Maximum size as JSON. While one pod is read, the decoded form may take twenty times as much."""

_ADVICE = "name nodes by a label that they share"


class Toleration(objects.View, frozen=True):
    """The taints that a pod tolerates."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Expression(objects.View, frozen=True):
    """One requirement of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(objects.View, frozen=True):
    """Requirements that all must hold."""

    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class _Required(objects.View, frozen=True):
    node_selector_terms: tuple[Term, ...] = ()


class _NodeAffinity(objects.View, frozen=True):
    required: _Required | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(objects.View, frozen=True):
    """The part of a pod's affinity that decides about nodes."""

    node_affinity: _NodeAffinity | None = None

    @property
    def terms(self) -> tuple[Term, ...] | None:
        """Return the terms, of which one must hold; None if there is no required affinity."""
        required = self.node_affinity and self.node_affinity.required
        return required.node_selector_terms if required else None


class NodeRules(objects.View, frozen=True):
    """The rules as they are written in a PodSpec."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity | None = None

    def parse(
        self,
    ) -> tuple[NodeSelector | None, tuple[PlacementToleration, ...]]:
        """Convert the rules into placement's types.

        Raises:
            RequestInvalid: there are too many.
            InvalidSelector, ValueError: one of them is invalid.
        """
        terms = self.affinity.terms if self.affinity else None
        self._require_few(terms or ())
        return self._selector(terms), tuple(map(_toleration, self.tolerations))

    def _selector(self, terms: tuple[Term, ...] | None) -> NodeSelector | None:
        if not self.node_selector and terms is None:
            return None
        parsed = None if terms is None else tuple(map(_term, terms))
        return NodeSelector(tuple(sorted(self.node_selector.items())), parsed)

    def _require_few(self, terms: Sequence[Term]) -> None:
        expressions = [e for term in terms for e in (*term.match_expressions, *term.match_fields)]
        _require_at_most(
            MAX_CONDITIONS,
            len(self.node_selector) + len(self.tolerations) + len(terms) + len(expressions),
            "labels, tolerations, terms and expressions",
        )
        _require_at_most(MAX_VALUES, sum(len(e.values) for e in expressions), "values")


class RawRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules as bytes, from kube-scheduler's call or from the watch."""

    node_selector: msgspec.Raw
    tolerations: msgspec.Raw
    affinity: msgspec.Raw

    def decode(self) -> NodeRules:
        """Decode the rules.

        Raises:
            RequestInvalid: they are too long, or do not match Kubernetes' types.
        """
        parts = {name: bytes(getattr(self, name)) for name in self.__struct_fields__}
        size = sum(map(len, parts.values()))
        _require_at_most(MAX_BYTES, size, "bytes of JSON")
        try:
            return NodeRules(
                node_selector=_read(parts["node_selector"], dict[str, str] | None) or {},
                tolerations=_read(parts["tolerations"], tuple[Toleration, ...] | None) or (),
                affinity=_read(parts["affinity"], Affinity | None),
            )
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RequestInvalid(f"its rules about nodes cannot be read: {error}") from error


def _read(raw: bytes, kind: object) -> Any:
    return msgspec.json.decode(raw, type=kind)


def _require_at_most(max_number: int, found: int, what: str) -> None:
    if found > max_number:
        raise RequestInvalid(
            f"nodeSelector, node affinity and tolerations have {found} {what} in all; at most "
            f"{max_number} are read: {_ADVICE}"
        )


def _term(term: Term) -> PlacementTerm:
    return PlacementTerm(
        tuple(map(_requirement, term.match_expressions)),
        tuple(map(_requirement, term.match_fields)),
    )


def _requirement(expression: Expression) -> Requirement:
    return Requirement(expression.key, Operator(expression.operator), expression.values)


def _toleration(toleration: Toleration) -> PlacementToleration:
    return PlacementToleration(
        key=toleration.key,
        operator=TolerationOperator(toleration.operator or "Equal"),
        value=toleration.value,
        effect=Effect(toleration.effect) if toleration.effect else None,
    )
