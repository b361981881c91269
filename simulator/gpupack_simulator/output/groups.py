# SPDX-License-Identifier: Apache-2.0
"""Groups of equal nodes, for plots of clusters that are too large to name each node."""

from collections.abc import Sequence
from itertools import groupby

from gpupack_placement import Node

NAMED = 40
"""Maximum number of nodes that are named one by one."""


def kind(node: Node) -> str:
    """Return a text such as «8 x A100»; all models if a node has several."""
    models = "+".join(dict.fromkeys(device.model for device in node.devices))
    return f"{len(node.devices)} x {models}" if node.devices else "no GPU"


def ordered(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes as given if each can be named, else by kind, most GPUs first."""
    if len(nodes) <= NAMED:
        return list(nodes)
    return sorted(nodes, key=lambda node: (-len(node.devices), kind(node)))


def runs_of_kind(nodes: Sequence[Node]) -> list[tuple[str, list[Node]]]:
    """Group neighbours of the same kind."""
    return [(name, list(found)) for name, found in groupby(nodes, kind)]
