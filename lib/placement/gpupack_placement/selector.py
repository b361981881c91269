# SPDX-License-Identifier: Apache-2.0
"""Constraints on nodes: node selector, required node affinity, tolerations.

The semantics are kube-scheduler's, so that its filters later accept a plan.
"""

from dataclasses import dataclass
from enum import StrEnum

from gpupack_placement.errors import InvalidSelector
from gpupack_placement.model import Effect, Node

NAME_FIELD = "metadata.name"


class Operator(StrEnum):
    """The comparison of a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One row of matchExpressions (a label) or of matchFields (`metadata.name`)."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.operator in {Operator.GT, Operator.LT}:
            if len(self.values) != 1 or _integer(self.values[0]) is None:
                raise InvalidSelector(f"{self.key}: {self.operator} needs exactly one integer")
        elif (self.operator in {Operator.IN, Operator.NOT_IN}) != bool(self.values):
            raise InvalidSelector(f"{self.key}: {self.operator} with values {self.values}")

    def matches(self, value: str | None) -> bool:
        """Tell whether a label of this value (None: absent) satisfies the requirement."""
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GT | Operator.LT:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        label, bound = _integer(value), int(self.values[0])
        if label is None:
            return False
        return label > bound if self.operator is Operator.GT else label < bound


@dataclass(frozen=True, slots=True)
class Term:
    """Requirements that must all hold. An empty term matches no node, as in Kubernetes."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def __post_init__(self) -> None:
        for requirement in self.fields:
            if requirement.key != NAME_FIELD:
                raise InvalidSelector(f"matchFields knows only {NAME_FIELD}, not {requirement.key}")

    def matches(self, node: Node) -> bool:
        """Tell whether the node satisfies every requirement."""
        if not self.labels and not self.fields:
            return False
        return all(r.matches(node.labels.get(r.key)) for r in self.labels) and all(
            r.matches(node.name) for r in self.fields
        )


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """A pod's constraints on nodes.

    `labels` (a pod's nodeSelector) must all match; of `terms` (node affinity) at least one.
    `terms=None` has no constraint; `terms=()` matches no node, as in Kubernetes.
    """

    labels: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None

    @property
    def requirements(self) -> int:
        """Number of comparisons: labels, terms, and values of their requirements."""
        judged = (r for term in self.terms or () for r in (*term.labels, *term.fields))
        return len(self.labels) + len(self.terms or ()) + sum(1 + len(r.values) for r in judged)

    @property
    def text(self) -> int:
        """Number of characters of all keys and values."""
        judged = (r for term in self.terms or () for r in (*term.labels, *term.fields))
        in_terms = sum(len(r.key) + sum(map(len, r.values)) for r in judged)
        return in_terms + sum(len(key) + len(value) for key, value in self.labels)

    def matches(self, node: Node) -> bool:
        """Tell whether a pod with this selector may be placed on the node."""
        if any(node.labels.get(key) != value for key, value in self.labels):
            return False
        return self.terms is None or any(term.matches(node) for term in self.terms)


class TolerationOperator(StrEnum):
    """The comparison of a toleration: Equal compares the taint's value, Exists does not."""

    EQUAL = "Equal"
    EXISTS = "Exists"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration. Empty `key` with Exists tolerates every taint; `effect=None` every effect."""

    key: str = ""
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: Effect | None = None

    def __post_init__(self) -> None:
        if not self.key and self.operator is not TolerationOperator.EXISTS:
            raise InvalidSelector("a toleration without key needs the operator Exists")


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
