# SPDX-License-Identifier: Apache-2.0
"""NVLink cliques: the GPUs of a node that reach one another over NVLink."""

from collections.abc import Callable, Sequence

Reaches = Callable[[int, int], bool]


def connected_groups(indices: Sequence[int], linked: Reaches) -> dict[int, int]:
    """Group GPUs that reach each other over NVLink, also through other GPUs, by union-find.

    Args:
        indices: the GPUs, in ascending order.
        linked: whether two GPUs are linked.

    Returns:
        For each GPU with a peer the lowest index of its group; GPUs without a peer are left out.
    """
    parent = {index: index for index in indices}

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    grouped: set[int] = set()
    for position, low in enumerate(indices):
        for high in indices[position + 1 :]:
            if linked(low, high):
                first, second = sorted((root(low), root(high)))
                parent[second] = first
                grouped |= {low, high}
    return {index: root(index) for index in sorted(grouped)}
