# SPDX-License-Identifier: Apache-2.0
"""Nodes whose kubelet is silent, and for how long.

Kubernetes' node controller sets Ready to Unknown for such a node. A node that is silent for long
says nothing about its GPUs any more, whatever its GPUNode lists: the agent could not have changed
it. The time counts from the moment at which this process saw the silence, by its own clock.
"""

import math
from collections.abc import Callable
from typing import Final

from gpupack_kubeclient import objects

LONG_SECONDS: Final = 300.0
"""The time for which Kubernetes leaves pods on an unreachable node."""


class SilentNodes:
    """The silent nodes, and since when they are silent.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._due_at = math.inf

    def put(self, name: str, node: objects.Node | None) -> None:
        """Update a node; None if there is no such node."""
        if node is None or not _is_silent(node):
            self._since.pop(name, None)
        elif name not in self._since:
            self._since[name] = self._clock()
            self._due_at = min(self._due_at, self._since[name] + LONG_SECONDS)

    def is_long(self, name: str) -> bool:
        """Tell whether a node has been silent for long."""
        since = self._since.get(name)
        return since is not None and self._clock() - since >= LONG_SECONDS

    def became_long(self) -> bool:
        """Tell whether a silence may have become long since the last call."""
        now = self._clock()
        if now < self._due_at:
            return False
        later = (since + LONG_SECONDS for since in self._since.values())
        self._due_at = min((at for at in later if at > now), default=math.inf)
        return True


def _is_silent(node: objects.Node) -> bool:
    return any(c.type == "Ready" and c.status == "Unknown" for c in node.status.conditions)
