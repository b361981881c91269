# SPDX-License-Identifier: Apache-2.0
"""Placements by holder and by node, whether or not the node is known."""

from copy import copy

from gpupack_devices.units import Holder, NodeName
from gpupack_placement.errors import AlreadyHeld, NotHeld
from gpupack_placement.placement import Placement


class Holdings:
    """The holdings; a holder has at most one placement."""

    def __init__(self) -> None:
        self._held: dict[Holder, Placement] = {}
        self._on: dict[NodeName, dict[Holder, Placement]] = {}
        """Placements by node; copies share the inner dictionaries, which are replaced and never
        changed."""

    def add(self, holder: Holder, placement: Placement) -> None:
        """Add a holding; raise AlreadyHeld, so that nothing is counted twice."""
        if holder in self._held:
            raise AlreadyHeld(f"{holder} holds devices on {self._held[holder].node} already")
        self._held[holder] = placement
        node = placement.node
        self._on[node] = {**self._on.get(node, {}), holder: placement}

    def remove(self, holder: Holder) -> Placement:
        """Remove a holding; raise NotHeld, so that nothing is given back twice."""
        placement = self._held.pop(holder, None)
        if placement is None:
            raise NotHeld(f"{holder} holds nothing")
        left = self.on(placement.node)
        del left[holder]
        if left:
            self._on[placement.node] = left
        else:
            del self._on[placement.node]
        return placement

    def of(self, holder: Holder) -> Placement | None:
        """Return the holder's placement; None: it holds nothing."""
        return self._held.get(holder)

    def all(self) -> dict[Holder, Placement]:
        """Return a copy of all holdings, in the order in which they were taken."""
        return self._held.copy()

    def on(self, node: NodeName) -> dict[Holder, Placement]:
        """Return a copy of the holdings on the node."""
        return dict(self._on.get(node, {}))

    def copy(self) -> "Holdings":
        """Return an independent copy."""
        twin = copy(self)
        vars(twin).update(_held=self._held.copy(), _on=self._on.copy())
        return twin
