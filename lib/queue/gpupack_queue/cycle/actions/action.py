# SPDX-License-Identifier: Apache-2.0
"""The interface of an action: one kind of decision that a cycle makes."""

from typing import Protocol

from gpupack_queue.cycle.context import CycleContext


class Action(Protocol):
    """A kind of decision; it keeps nothing between two cycles."""

    def run(self, cycle: CycleContext, /) -> None:
        """Make all decisions of this kind that can be made now."""
