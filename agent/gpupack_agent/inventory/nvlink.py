# SPDX-License-Identifier: Apache-2.0
"""Which GPUs reach each other over NVLink.

Pairs are asked for their peer-to-peer status, not for the far end of each link: behind NVSwitch the
far end is the switch.
"""

from collections.abc import Callable, Sequence


def cliques(indices: Sequence[int], linked: Callable[[int, int], bool]) -> dict[int, int]:
    """Group GPUs by union-find.

    Args:
        indices: the GPUs, in ascending order.
        linked: whether two of them reach each other.

    Returns:
        For each GPU with a peer the lowest index of its group; GPUs without one are left out.
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
