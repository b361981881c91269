# SPDX-License-Identifier: Apache-2.0
"""The choice of devices on a node.

The policy chooses the GPU of a share: by default the fullest GPU with room. If that opens an idle
GPU, it is the one that a request for one whole GPU would get.

Whole GPUs are chosen so that, in this order,
  1. they come from as few NVLink cliques as possible, so from one if one has enough;
  2. the cliques that stay whole are the largest: of what is left idle the largest clique is as
     large as possible, then the second largest, and so on;
  3. they come from as few NUMA nodes as possible (unknown ones count as one);
then by index. A GPU without NVLink counts as a clique of one. If the policy wants the fastest GPUs,
the choice is among those alone, unless that takes more cliques.

MIG slices come from the GPUs that are used most, so that few are opened and others stay empty.
Where GPUs must be opened, the choice leaves the fullest ones whole.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, combinations, islice, product

import numpy as np

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import ABSENT, Arrays, BoolArray, IntArray
from gpupack_placement.model import Health
from gpupack_placement.policies.policy import Policy
from gpupack_placement.request import Request, Share

_MAX_WAYS = 256
"""Maximum number of ways to choose among cliques of equal size that are compared by NUMA nodes."""

Columns = list[int]


def choose_devices(
    arrays: Arrays, row: int, request: Request, eligible: BoolArray | None, policy: Policy
) -> tuple[int, ...]:
    """Return the columns of the devices, in column order; the node must have room for them.

    `eligible`: devices of the node that may serve the request; None: all GPUs.
    """
    columns = range(arrays.shape[1])
    allowed = [c for c in columns if eligible is None or eligible[c]]
    if request.share is not None:
        return (_for_share(arrays, row, request, allowed, policy),)
    if request.slices is not None:
        return _slices(arrays, row, allowed, request.slices.number)
    if not request.gpus:
        return ()
    free = arrays.free_milli[row].tolist()
    idle = [c for c in allowed if free[c] == WHOLE_GPU]
    chosen = _whole(arrays, row, idle, request.gpus)
    return _fastest(arrays, row, idle, chosen) if policy.prefers_fastest else chosen


def _fastest(arrays: Arrays, row: int, idle: Columns, chosen: tuple[int, ...]) -> tuple[int, ...]:
    """Return as many of the fastest GPUs, or `chosen` if those span fewer cliques."""
    speeds, numbers = arrays.speed[row].tolist(), arrays.clique[row].tolist()
    slowest = sorted((speeds[c] for c in idle), reverse=True)[len(chosen) - 1]
    faster = _whole(arrays, row, [c for c in idle if speeds[c] >= slowest], len(chosen))
    is_apart = len(_cliques(list(faster), numbers)) > len(_cliques(list(chosen), numbers))
    return chosen if is_apart else faster


def tightest_clique(
    arrays: Arrays, row: int, units: IntArray | BoolArray, needed: int
) -> BoolArray:
    """Return the devices of the clique with least free capacity that has enough units."""
    numbers, left = arrays.clique[row].tolist(), arrays.free_milli[row].tolist()
    each = units.tolist()
    cliques = _cliques([column for column in range(len(each)) if each[column]], numbers)
    enough = [clique for clique in cliques if sum(each[c] for c in clique) >= needed]
    chosen = min(enough, key=lambda clique: (sum(left[c] for c in clique), clique))
    mask = np.zeros(len(each), np.bool_)
    mask[chosen] = True
    return mask


def _for_share(arrays: Arrays, row: int, request: Request, allowed: Columns, policy: Policy) -> int:
    milli, memory = arrays.free_milli[row].tolist(), arrays.free_memory[row].tolist()
    slots, share = arrays.free_shares[row].tolist(), request.share
    fits = [c for c in allowed if share and _fits(milli[c], memory[c], slots[c], share)]
    chosen = policy.share_column(arrays, request, row, fits)
    if milli[chosen] < WHOLE_GPU:
        return chosen
    models = arrays.model[row].tolist()
    alike = [
        c
        for c in fits
        if (milli[c], memory[c], models[c]) == (milli[chosen], memory[chosen], models[chosen])
    ]
    return _whole(arrays, row, alike, 1)[0]


def _fits(milli: int, memory: int, slots: int, share: Share) -> bool:
    return milli >= share.milli and memory >= share.memory and slots > 0


def _whole(arrays: Arrays, row: int, idle: Columns, gpus: int) -> tuple[int, ...]:
    numbers, numa = arrays.clique[row].tolist(), arrays.numa[row].tolist()
    cliques = _cliques(idle, numbers)
    if len(cliques) == len(idle):
        return _fewest_numa_nodes(idle, gpus, numa)
    enough = [clique for clique in cliques if len(clique) >= gpus]
    if enough:
        size = min(map(len, enough))
        ways = (_fewest_numa_nodes(c, gpus, numa) for c in enough if len(c) == size)
    else:
        ways = (_choose_from_cliques(way, gpus, numa) for way in _ways(cliques, gpus))
    return min(ways, key=lambda chosen: (len({numa[c] for c in chosen}), chosen))


def _cliques(columns: Columns, numbers: Sequence[int]) -> list[Columns]:
    return _groups(columns, lambda c: numbers[c] if numbers[c] != ABSENT else -2 - c)


def _groups(columns: Columns, group_of: Callable[[int], int]) -> list[Columns]:
    groups: dict[int, Columns] = {}
    for column in columns:
        groups.setdefault(group_of(column), []).append(column)
    return list(groups.values())


def _ways(cliques: list[Columns], gpus: int) -> Iterator[list[Columns]]:
    """Yield sets of cliques that satisfy rules 1 and 2; each set needs all of its cliques.

    The rest that a set leaves is smaller than any clique of the set (otherwise the set could do
    without that clique), so rule 2 only decides which cliques stay out: from the largest down, each
    clique without which as many of the others are enough.
    """
    sizes = _needed_sizes(sorted(map(len, cliques), reverse=True), gpus)
    by_size = {s: [c for c in cliques if len(c) == s] for s in dict.fromkeys(sizes)}
    choices = (combinations(alike, sizes.count(size)) for size, alike in by_size.items())
    return islice((list(chain.from_iterable(way)) for way in product(*choices)), _MAX_WAYS)


def _needed_sizes(sizes: Sequence[int], gpus: int) -> Sequence[int]:
    """Return the sizes of the cliques that are needed; `sizes` is in descending order."""
    number = next(n for n in range(1, len(sizes) + 1) if sum(sizes[:n]) >= gpus)
    kept = list(sizes)
    for size in sizes:
        others = kept.copy()
        others.remove(size)
        if sum(others[:number]) >= gpus:
            kept = others
    return kept


def _choose_from_cliques(cliques: list[Columns], gpus: int, numa: Sequence[int]) -> tuple[int, ...]:
    """Return all GPUs of these cliques but the rest, which stays where it saves NUMA nodes."""
    rest = sum(map(len, cliques)) - gpus
    if not rest:
        return tuple(sorted(chain.from_iterable(cliques)))
    ways = (_all_but(cliques, broken, rest, numa) for broken in cliques)
    return min(ways, key=lambda chosen: (len({numa[c] for c in chosen}), chosen))


def _all_but(
    cliques: list[Columns], broken: Columns, rest: int, numa: Sequence[int]
) -> tuple[int, ...]:
    whole = [c for clique in cliques if clique is not broken for c in clique]
    paid = {numa[c] for c in whole}
    part = _fewest_numa_nodes(broken, len(broken) - rest, numa, paid)
    return tuple(sorted((*whole, *part)))


def _fewest_numa_nodes(
    columns: Columns, gpus: int, numa: Sequence[int], paid: Collection[int] = ()
) -> tuple[int, ...]:
    """Return GPUs on NUMA nodes already in use, then from few others, the largest left whole."""
    free = [c for c in columns if numa[c] in paid][:gpus]
    groups = _groups([c for c in columns if c not in free], lambda c: numa[c])
    return tuple(sorted([*free, *_from_groups(groups, gpus - len(free))]))


def _from_groups(groups: list[Columns], number: int) -> Columns:
    """Choose from as few groups as possible: the smallest that is enough, else the largest."""
    left, chosen = groups.copy(), Columns()
    while len(chosen) < number:
        enough = [group for group in left if len(group) >= number - len(chosen)]
        group = min(enough, key=len) if enough else max(left, key=len)
        left.remove(group)
        chosen += group[: number - len(chosen)]
    return chosen


def _slices(arrays: Arrays, row: int, allowed: Columns, number: int) -> tuple[int, ...]:
    health, held = arrays.health[row].tolist(), arrays.used_milli[row].tolist()
    parents, used = arrays.parent[row].tolist(), arrays.used_memory[row].tolist()
    free = [c for c in allowed if 0 <= health[c] <= Health.DEGRADED and not held[c]]
    load = {parents[c]: 0 for c in range(len(held)) if held[c]}
    for column, memory in enumerate(used):
        if held[column]:
            load[parents[column]] += memory
    fullest_first = sorted((c for c in free if parents[c] in load), key=lambda c: -load[parents[c]])
    chosen = fullest_first[:number]
    untouched = _groups([c for c in free if parents[c] not in load], lambda c: parents[c])
    return tuple(sorted([*chosen, *_from_groups(untouched, number - len(chosen))]))
