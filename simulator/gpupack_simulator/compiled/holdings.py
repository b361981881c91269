# SPDX-License-Identifier: Apache-2.0
"""The choice of row and GPUs for a job, and their free figures: placement's decide and Cluster."""

from gpupack_placement import WHOLE_GPU
from gpupack_simulator.compiled.loops import compiled
from gpupack_simulator.compiled.scores import score, share_device
from gpupack_simulator.compiled.tables import NO_HOLDER, Jobs, Nodes, Prices, RequestClasses


@compiled
def best_row(nodes: Nodes, classes: RequestClasses, class_: int, prices: Prices) -> int:
    """Return the row with room and the best score; NO_HOLDER: no row has room.

    A score is computed again only if the row has changed since the class_'s last use of it.
    """
    best, score_of_best = NO_HOLDER, 0
    for row in range(len(nodes.order)):
        if not fits(nodes, row, classes, class_):
            continue
        if classes.seen[class_, row] != nodes.version[row]:
            classes.score[class_, row] = score(nodes, row, classes, class_, prices)
            classes.seen[class_, row] = nodes.version[row]
        found = classes.score[class_, row]
        if (
            best == NO_HOLDER
            or found > score_of_best
            or (found == score_of_best and nodes.order[row] < nodes.order[best])
        ):
            best, score_of_best = row, found
    return best


@compiled
def fits(nodes: Nodes, row: int, classes: RequestClasses, class_: int) -> bool:
    """Tell whether one worker fits."""
    room: bool = (
        nodes.free_cpu[row] >= classes.cpu[class_]
        and nodes.free_memory[row] >= classes.memory[class_]
        and nodes.idle[row] >= classes.gpus[class_]
        and nodes.largest[row] >= classes.share[class_]
        and classes.accepts[class_, nodes.kind[row]]
    )
    return room


@compiled
def take(
    nodes: Nodes,
    row: int,
    classes: RequestClasses,
    class_: int,
    jobs: Jobs,
    job: int,
    prices: Prices,
) -> None:
    """Take the GPU that the policy chooses, or the first idle ones, on a row with room."""
    share, gpus, devices = classes.share[class_], classes.gpus[class_], 0
    if share:
        device = share_device(nodes, row, share, classes.cpu[class_], prices)
        if nodes.free_milli[row, device] == WHOLE_GPU:
            device = _first_idle(nodes, row)
        devices = 1 << device
    else:
        for device in range(nodes.free_milli.shape[1]):
            if gpus and nodes.free_milli[row, device] == WHOLE_GPU:
                devices |= 1 << device
                gpus -= 1
    jobs.node[job], jobs.devices[job] = row, devices
    _hold(nodes, row, classes, class_, devices, 1)


@compiled
def release(nodes: Nodes, classes: RequestClasses, class_: int, jobs: Jobs, job: int) -> None:
    """Give back what the job holds."""
    _hold(nodes, jobs.node[job], classes, class_, jobs.devices[job], -1)


@compiled
def _first_idle(nodes: Nodes, row: int) -> int:
    """Return the first idle GPU with a slot for a share."""
    for device in range(nodes.free_milli.shape[1]):
        if nodes.free_milli[row, device] == WHOLE_GPU and nodes.free_shares[row, device] > 0:
            return device
    return NO_HOLDER


@compiled
def _hold(
    nodes: Nodes, row: int, classes: RequestClasses, class_: int, devices: int, sign: int
) -> None:
    share = classes.share[class_]
    idle, largest, total = 0, 0, 0
    for device in range(nodes.free_milli.shape[1]):
        if devices >> device & 1:
            nodes.free_milli[row, device] -= sign * (share or WHOLE_GPU)
            if share:
                nodes.free_shares[row, device] -= sign
        free = nodes.free_milli[row, device]
        total += free
        idle += free == WHOLE_GPU
        if nodes.free_shares[row, device] > 0:
            largest = max(largest, free)
    nodes.idle[row], nodes.largest[row], nodes.free_gpu_milli[row] = idle, largest, total
    nodes.free_cpu[row] -= sign * classes.cpu[class_]
    nodes.free_memory[row] -= sign * classes.memory[class_]
    nodes.version[row] += 1
