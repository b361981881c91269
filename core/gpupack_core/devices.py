# SPDX-License-Identifier: Apache-2.0
"""Which devices of the chosen node.

A share goes to the GPU with the least left that still has room, so that whole GPUs stay whole,
unless the policy says otherwise.
Whole GPUs come from one NVLink clique if one has enough, from the clique with the fewest free,
so that the largest stays whole; within it from one NUMA node by the same rule; then by index.
A GPU without NVLink counts as a clique of one.
"""

from collections.abc import Callable, Iterable

from gpupack_core.arrays import ABSENT, Arrays, BoolArray
from gpupack_core.policies.policy import Policy
from gpupack_core.request import Request, Share
from gpupack_core.units import WHOLE_GPU


def choose_devices(
    arrays: Arrays, row: int, request: Request, eligible: BoolArray | None, policy: Policy
) -> tuple[int, ...]:
    """Columns of the devices, in column order; the node is known to have room for them.

    `eligible`: which devices of the node may serve the request; None: all.
    """
    columns = range(arrays.shape[1])
    allowed = [c for c in columns if eligible is None or eligible[c]]
    if request.share is not None:
        room = _with_room(arrays, row, request.share, allowed)
        return (policy.share_column(arrays, request, row, room),)
    if not request.gpus:
        return ()
    free = arrays.free_milli[row].tolist()
    idle = [c for c in allowed if free[c] == WHOLE_GPU]
    return _whole(arrays, row, idle, request.gpus)


def _with_room(arrays: Arrays, row: int, share: Share, columns: Iterable[int]) -> list[int]:
    milli, memory = arrays.free_milli[row].tolist(), arrays.free_memory[row].tolist()
    slots = arrays.free_shares[row].tolist()
    return [
        c for c in columns if milli[c] >= share.milli and memory[c] >= share.memory and slots[c]
    ]


def _whole(arrays: Arrays, row: int, idle: list[int], gpus: int) -> tuple[int, ...]:
    cliques, numa = arrays.clique[row].tolist(), arrays.numa[row].tolist()

    def clique_of(column: int) -> int:
        return cliques[column] if cliques[column] != ABSENT else -2 - column

    pool = _tightest(idle, gpus, clique_of)
    return tuple(_tightest(pool, gpus, lambda column: numa[column])[:gpus])


def _tightest(columns: list[int], gpus: int, group_of: Callable[[int], int]) -> list[int]:
    """The smallest group with enough devices, the first of equals; all if none has."""
    groups: dict[int, list[int]] = {}
    for column in columns:
        groups.setdefault(group_of(column), []).append(column)
    enough = [group for group in groups.values() if len(group) >= gpus]
    return min(enough, key=len) if enough else columns
