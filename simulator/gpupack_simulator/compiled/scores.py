# SPDX-License-Identifier: Apache-2.0
"""The scores of `best-fit`, `fgd` and `bid-price` for one row that has room.

Formulas and constants are those of core's policies; tests compare every decision of a run.
"""

import numpy as np

from gpupack_placement import WHOLE_GPU, IntArray
from gpupack_placement.fragmentation import UNIT
from gpupack_placement.policies import best_fit, bid_price
from gpupack_simulator.compiled.loops import compiled
from gpupack_simulator.compiled.tables import (
    BID_PRICE,
    FGD,
    NO_HOLDER,
    Nodes,
    Prices,
    RequestClasses,
)

_LINE = WHOLE_GPU + 1
_THOUSAND = 1000
_OPENING = round(bid_price.OPENING * UNIT)
_WITH_FREE_GPUS = round(bid_price.NEXT_TO_FREE_GPUS * UNIT)
_CPU_LEFT = round(bid_price.CPU_LEFT * UNIT)
_STEP = round(bid_price.STEP * UNIT) * _THOUSAND * WHOLE_GPU
_LARGEST_CPU = bid_price.LARGEST_CPU_MILLI
_BEST_FIT_CPU, _BEST_FIT_GPU = best_fit.LARGEST_CPU_MILLI, best_fit.LARGEST_GPU_MILLI


@compiled
def score(nodes: Nodes, row: int, classes: RequestClasses, class_: int, prices: Prices) -> int:
    """Return the score of a row; larger is better."""
    if prices.policy == BID_PRICE:
        return _bid_price(nodes, row, classes, class_, prices)
    if prices.policy == FGD:
        return _fgd(nodes, row, classes, class_, prices)
    return _best_fit(nodes, row, classes, class_)


@compiled
def share_device(nodes: Nodes, row: int, share: int, cpu: int, prices: Prices) -> int:
    """Return the GPU of this row for a share: the fullest, or FGD's best."""
    if prices.policy == FGD:
        return _best_share(nodes, row, share, cpu, prices)[1]
    free, chosen = nodes.free_milli[row], NO_HOLDER
    for device in range(len(free)):
        if free[device] < share or nodes.free_shares[row, device] <= 0:
            continue
        if chosen == NO_HOLDER or free[device] < free[chosen]:
            chosen = device
    return chosen


@compiled
def _best_fit(nodes: Nodes, row: int, classes: RequestClasses, class_: int) -> int:
    milli = classes.share[class_] or classes.gpus[class_] * WHOLE_GPU
    cpu_left = (nodes.free_cpu[row] - classes.cpu[class_]) / _BEST_FIT_CPU
    gpu_left = (nodes.free_gpu_milli[row] - milli) / _BEST_FIT_GPU
    return int(np.floor(100.0 * (1.0 - 0.5 * cpu_left - 0.5 * gpu_left)))


@compiled
def _fgd(nodes: Nodes, row: int, classes: RequestClasses, class_: int, prices: Prices) -> int:
    share, gpus, cpu = classes.share[class_], classes.gpus[class_], classes.cpu[class_]
    if share:
        return _best_share(nodes, row, share, cpu, prices)[0]
    free, kind, idle = nodes.free_milli[row], nodes.kind[row], nodes.idle[row]
    before = _useful(prices, kind, free, idle, nodes.free_cpu[row])
    after = _useful(prices, kind, free, idle - gpus, nodes.free_cpu[row] - cpu)
    after -= gpus * prices.shares[_line(prices, kind, nodes.free_cpu[row] - cpu) + WHOLE_GPU]
    return _level(prices.thresholds, after - before + prices.total * gpus * WHOLE_GPU)


@compiled
def _best_share(nodes: Nodes, row: int, share: int, cpu: int, prices: Prices) -> tuple[int, int]:
    """Return FGD's score of the best GPU for a share, and the first GPU that has it."""
    free, kind, idle = nodes.free_milli[row], nodes.kind[row], nodes.idle[row]
    cpu_left = nodes.free_cpu[row] - cpu
    base = _useful(prices, kind, free, idle, cpu_left) + prices.total * share
    base -= _useful(prices, kind, free, idle, nodes.free_cpu[row])
    line, opened = _line(prices, kind, cpu_left), 0
    if idle:
        opened = _wholes(prices, kind, idle - 1, cpu_left) - _wholes(prices, kind, idle, cpu_left)
    best, chosen = -1, NO_HOLDER
    for device in range(len(free)):
        if free[device] < share or nodes.free_shares[row, device] <= 0:
            continue
        at = line + free[device]
        gain = base - prices.shares[at] + prices.shares[at - share]
        if free[device] == WHOLE_GPU:
            gain += opened
        found = _level(prices.thresholds, gain)
        if found > best:
            best, chosen = found, device
    return best, chosen


@compiled
def _bid_price(nodes: Nodes, row: int, classes: RequestClasses, class_: int, prices: Prices) -> int:
    share, gpus = classes.share[class_], classes.gpus[class_]
    free, kind, idle = nodes.free_milli[row], nodes.kind[row], nodes.idle[row]
    cpu, cpu_left = nodes.free_cpu[row], nodes.free_cpu[row] - classes.cpu[class_]
    # each of `number` GPUs has `had` free before, and `takes` less after
    milli, number, had, takes = gpus * WHOLE_GPU, gpus, WHOLE_GPU, WHOLE_GPU
    if share:
        device = share_device(nodes, row, share, classes.cpu[class_], prices)
        milli, number, had, takes = share, 1, free[device], share
    idle_left = idle - (number if had == WHOLE_GPU else 0)
    worth = 0
    for device in range(len(free)):
        worth += prices.worth[free[device]]
    less = number * (prices.worth[had] - prices.worth[had - takes])
    gain = _value(prices, worth - less, cpu_left) - _value(prices, worth, cpu)
    gain *= prices.weight * WHOLE_GPU
    if prices.settled:
        line = _line(prices, kind, cpu_left)
        useful = _useful(prices, kind, free, idle_left, cpu_left)
        useful -= number * (prices.shares[line + had] - prices.shares[line + had - takes])
        useful -= _useful(prices, kind, free, idle, cpu)
        gain += prices.settled * (useful + prices.total * milli)
    if share and idle_left < idle:
        gain -= _OPENING * prices.weight * WHOLE_GPU
    elif not milli:
        penalty = _CPU_LEFT * cpu_left // _LARGEST_CPU
        if nodes.free_gpu_milli[row] > 0:
            penalty += _WITH_FREE_GPUS
        gain -= penalty * ((_THOUSAND - prices.settled) * WHOLE_GPU)
    if len(prices.by_kind):
        gain -= prices.by_kind[kind] * milli
    rounded: int = gain // _STEP
    return rounded


@compiled
def _value(prices: Prices, worth: int, cpu: int) -> int:
    """Return U in parts, from the worth of all gaps."""
    x, stranded = worth - ((cpu * prices.parts_per_cpu) >> 10), 0
    if x >= prices.reach:
        stranded = x * prices.per_mille // _THOUSAND
    elif x >= -prices.reach:
        place = min(max((x + prices.reach) >> prices.shift, 0), len(prices.stranded) - 1)
        stranded = prices.stranded[place]
    return worth - stranded


@compiled
def _useful(prices: Prices, kind: int, free: IntArray, idle: int, cpu: int) -> int:
    """Return the useful capacity, as Fragmentation.useful_with does."""
    line, useful = _line(prices, kind, cpu), _wholes(prices, kind, idle, cpu)
    for device in range(len(free)):
        useful += prices.shares[line + free[device]]
    return useful


@compiled
def _line(prices: Prices, kind: int, cpu: int) -> int:
    """Return where the line of a node begins in the table for shares."""
    line: int = prices.first_line[kind] + _level(prices.cpu_figures, cpu)
    return line * _LINE


@compiled
def _wholes(prices: Prices, kind: int, idle: int, cpu: int) -> int:
    """Return the useful capacity of idle GPUs for demands for whole GPUs."""
    line = prices.first_line[kind] + _level(prices.cpu_figures, cpu)
    useful: int = prices.wholes[line * prices.width + idle]
    return useful


@compiled
def _level(ascending: IntArray, figure: int) -> int:
    """Return how many of the figures are at most as large."""
    low, high = 0, len(ascending)
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] <= figure:
            low = middle + 1
        else:
            high = middle
    return low
