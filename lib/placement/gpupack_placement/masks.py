# SPDX-License-Identifier: Apache-2.0
"""Labels and model names as vectors; taints.py has those of taints.

Strings are evaluated once per distinct value (models) or once per selector, never once per
decision. A selector's vector is kept and corrected row by row when a node's labels change. Only the
most recent selectors are kept, since users' pods bring an unlimited number of new ones.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from gpupack_devices.models import matches_model
from gpupack_placement.arrays import BoolArray, Kind
from gpupack_placement.model import Node
from gpupack_placement.selector import NodeSelector, Operator, Requirement, Term
from gpupack_placement.table import Table

_MAX_MASKS = 64
_MAX_TEXT = 4 << 20
"""Maximum number of characters of all selectors that are kept."""
_FEW_REQUIREMENTS = 16
"""Maximum number of requirements of a selector that is evaluated again for one node; larger ones
are forgotten when labels change."""


class LabelIndex:
    """An index of rows by label: a selector costs what it names, not terms times nodes.

    A selector of 512 terms takes milliseconds at 5,000 nodes; term by term and node by node it
    would take a second.
    """

    def __init__(self, nodes: Sequence[Node | None]) -> None:
        self._rows: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._names: dict[str, set[int]] = {}
        self._labels: dict[int, tuple[str, Mapping[str, str]]] = {}
        for row, node in enumerate(nodes):
            self.put(row, node)

    def differs(self, row: int, node: Node | None) -> bool:
        """Tell whether the name or the labels of the row's node have changed."""
        return self._labels.get(row) != (None if node is None else (node.name, node.labels))

    def put(self, row: int, node: Node | None) -> None:
        """Set the node of a row."""
        now = None if node is None else (node.name, node.labels)
        self._forget(row)
        if now is not None:
            self._labels[row] = now
            self._names[now[0]] = {row}
            for key, value in now[1].items():
                self._rows[key][value].add(row)

    def matches(self, selector: NodeSelector, rows: int) -> BoolArray:
        """Return one truth value per row, equal to `NodeSelector.matches` of each node."""
        known: dict[Requirement, BoolArray] = {}

        def holds(requirement: Requirement, values: Mapping[str, set[int]]) -> BoolArray:
            if requirement not in known:
                known[requirement] = _holds(requirement, values, rows)
            return known[requirement]

        matched = _mask(rows, self._labels)
        for key, value in selector.labels:
            matched &= _mask(rows, self._with(key).get(value, ()))
        if selector.terms is None:
            return matched
        anywhere = np.zeros(rows, np.bool_)
        for term in selector.terms:
            anywhere |= self._term(term, rows, holds)
        return matched & anywhere

    def _term(
        self,
        term: Term,
        rows: int,
        holds: Callable[[Requirement, Mapping[str, set[int]]], BoolArray],
    ) -> BoolArray:
        if not term.labels and not term.fields:
            return np.zeros(rows, np.bool_)
        found = np.ones(rows, np.bool_)
        for requirement in term.labels:
            found &= holds(requirement, self._with(requirement.key))
        for requirement in term.fields:
            found &= _holds(requirement, self._names, rows)
        return found

    def _with(self, key: str) -> Mapping[str, set[int]]:
        """Return the rows with a label of this key, by its value."""
        return self._rows.get(key, {})

    def _forget(self, row: int) -> None:
        name, labels = self._labels.pop(row, ("", {}))
        self._names.pop(name, None)
        for key, value in labels.items():
            values = self._rows[key]
            values[value].discard(row)
            if not values[value]:
                del values[value]
            if not values:
                del self._rows[key]


class SelectorMasks:
    """The rows that match each recent selector.

    A copy shares the index and may be used in another thread. When labels change, the copy or the
    original makes a new index of its own.
    """

    def __init__(self) -> None:
        self._masks: OrderedDict[NodeSelector, BoolArray] = OrderedDict()
        self._text = 0
        self._index: LabelIndex | None = None
        self._is_shared = False

    def copy(self, nodes: Sequence[Node | None]) -> "SelectorMasks":
        """Return a copy of these masks for a copy of the nodes."""
        twin = SelectorMasks()
        if self._index is None:
            self._index = LabelIndex(nodes)
        self._is_shared = twin._is_shared = True
        twin._index, twin._text = self._index, self._text
        twin._masks = OrderedDict((of, mask.copy()) for of, mask in self._masks.items())
        return twin

    def of(self, selector: NodeSelector, nodes: Sequence[Node | None]) -> BoolArray:
        """Return one truth value per row; `nodes` are the nodes of the rows."""
        mask = self._masks.get(selector)
        if mask is None:
            if self._index is None:
                self._index = LabelIndex(nodes)
            mask = self._masks[selector] = self._index.matches(selector, len(nodes))
            self._text += selector.text
            while len(self._masks) > _MAX_MASKS or (
                self._text > _MAX_TEXT and len(self._masks) > 1
            ):
                self._forget(next(iter(self._masks)))
        self._masks.move_to_end(selector)
        return mask

    def correct(self, row: int, node: Node | None) -> None:
        """Correct the masks for a change of this row's node."""
        if self._index is None or not self._index.differs(row, node):
            return
        if self._is_shared:
            self.forget()
            self._index, self._is_shared = None, False
            return
        self._index.put(row, node)
        for selector in list(self._masks):
            if selector.requirements > _FEW_REQUIREMENTS:
                self._forget(selector)
            else:
                self._masks[selector][row] = node is not None and selector.matches(node)

    def forget(self) -> None:
        """Forget all masks, since the number of rows changed."""
        self._masks.clear()
        self._text = 0

    def _forget(self, selector: NodeSelector) -> None:
        del self._masks[selector]
        self._text -= selector.text


def models_mask(models: Iterable[str], table: Table[str]) -> BoolArray:
    """Return which model names match one of the requested models."""
    return table.where(lambda model: any(matches_model(asked, model) for asked in models))


def kinds_mask(models: Iterable[str], table: Table[Kind]) -> BoolArray:
    """Return which kinds of GPUs match one of the requested models."""
    return table.where(lambda kind: any(matches_model(asked, *kind) for asked in models))


def _holds(requirement: Requirement, values: Mapping[str, set[int]], rows: int) -> BoolArray:
    """Return where a requirement holds; `values`: rows by the value that it compares."""
    match requirement.operator:
        case Operator.IN:
            return _of_values(requirement.values, values, rows)
        case Operator.NOT_IN:
            return ~_of_values(requirement.values, values, rows)
        case Operator.EXISTS:
            return _of_values(values, values, rows)
        case Operator.DOES_NOT_EXIST:
            return ~_of_values(values, values, rows)
        case Operator.GT | Operator.LT:
            fitting = [value for value in values if requirement.matches(value)]
            return _of_values(fitting, values, rows)


def _of_values(wanted: Iterable[str], values: Mapping[str, set[int]], rows: int) -> BoolArray:
    return _mask(rows, (row for value in wanted for row in values.get(value, ())))


def _mask(rows: int, those: Iterable[int]) -> BoolArray:
    mask = np.zeros(rows, np.bool_)
    mask[np.fromiter(those, np.int64)] = True
    return mask
