# SPDX-License-Identifier: Apache-2.0
"""Nodes of a kind, for pictures of clusters too large to name each node."""

from collections.abc import Sequence
from itertools import groupby

from gpupack_core import Node

NAMED = 40
"""More nodes than this are not named one by one."""


def kind(node: Node) -> str:
    """«8 x A100»; all models where a node has several."""
    models = "+".join(dict.fromkeys(device.model for device in node.devices))
    return f"{len(node.devices)} x {models}" if node.devices else "no GPU"


def ordered(nodes: Sequence[Node]) -> list[Node]:
    """As given where each can be named; else by kind, nodes with the most GPUs first."""
    if len(nodes) <= NAMED:
        return list(nodes)
    return sorted(nodes, key=lambda node: (-len(node.devices), kind(node)))


def runs_of_kind(nodes: Sequence[Node]) -> list[tuple[str, list[Node]]]:
    """Neighbours of the same kind."""
    return [(name, list(found)) for name, found in groupby(nodes, kind)]
