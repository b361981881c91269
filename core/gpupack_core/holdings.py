# SPDX-License-Identifier: Apache-2.0
"""Who holds which placement, by holder and by node, whether or not the node is known."""

from copy import copy

from gpupack_core.errors import AlreadyHeld, NotHeld
from gpupack_core.placement import Placement
from gpupack_core.units import Holder, NodeName


class Holdings:
    """A holder holds at most one placement."""

    def __init__(self) -> None:
        self._held: dict[Holder, Placement] = {}
        self._on: dict[NodeName, dict[Holder, Placement]] = {}
        """Copies share what is on a node: it is replaced, not changed."""

    def add(self, holder: Holder, placement: Placement) -> None:
        """Raises AlreadyHeld, so that nothing is booked twice."""
        if holder in self._held:
            raise AlreadyHeld(f"{holder} holds devices on {self._held[holder].node} already")
        self._held[holder] = placement
        node = placement.node
        self._on[node] = {**self._on.get(node, {}), holder: placement}

    def remove(self, holder: Holder) -> Placement:
        """Raises NotHeld, so that nothing is given back twice."""
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
        """What the holder holds."""
        return self._held.get(holder)

    def all(self) -> dict[Holder, Placement]:
        """A copy: everything that is held, in the order in which it was taken."""
        return self._held.copy()

    def on(self, node: NodeName) -> dict[Holder, Placement]:
        """A copy: what is held on the node."""
        return dict(self._on.get(node, {}))

    def copy(self) -> "Holdings":
        """The same entries, independent of these."""
        twin = copy(self)
        vars(twin).update(_held=self._held.copy(), _on=self._on.copy())
        return twin
