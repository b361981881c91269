# SPDX-License-Identifier: Apache-2.0
"""The choice of row and GPUs for a job, and their free figures: core's decide and Cluster."""

from gpupack_core import WHOLE_GPU
from gpupack_simulator.compiled.loops import compiled
from gpupack_simulator.compiled.scores import score, share_device
from gpupack_simulator.compiled.tables import NOBODY, Jobs, Lanes, Nodes, Prices


@compiled
def best_row(nodes: Nodes, lanes: Lanes, lane: int, prices: Prices) -> int:
    """Return the row with room and the best score; NOBODY: there is none.

    A score is computed again only if the row has changed since the lane's last use of it.
    """
    best, score_of_best = NOBODY, 0
    for row in range(len(nodes.order)):
        if not has_room(nodes, row, lanes, lane):
            continue
        if lanes.seen[lane, row] != nodes.version[row]:
            lanes.score[lane, row] = score(nodes, row, lanes, lane, prices)
            lanes.seen[lane, row] = nodes.version[row]
        found = lanes.score[lane, row]
        if (
            best == NOBODY
            or found > score_of_best
            or (found == score_of_best and nodes.order[row] < nodes.order[best])
        ):
            best, score_of_best = row, found
    return best


@compiled
def has_room(nodes: Nodes, row: int, lanes: Lanes, lane: int) -> bool:
    """Tell whether one worker fits."""
    room: bool = (
        nodes.free_cpu[row] >= lanes.cpu[lane]
        and nodes.free_memory[row] >= lanes.memory[lane]
        and nodes.idle[row] >= lanes.gpus[lane]
        and nodes.largest[row] >= lanes.share[lane]
        and lanes.accepts[lane, nodes.kind[row]]
    )
    return room


@compiled
def take(
    nodes: Nodes, row: int, lanes: Lanes, lane: int, jobs: Jobs, job: int, prices: Prices
) -> None:
    """Take the GPU that the policy chooses, or the first idle ones, on a row with room."""
    share, gpus, devices = lanes.share[lane], lanes.gpus[lane], 0
    if share:
        device = share_device(nodes, row, share, lanes.cpu[lane], prices)
        if nodes.free_milli[row, device] == WHOLE_GPU:
            device = _first_idle(nodes, row)
        devices = 1 << device
    else:
        for device in range(nodes.free_milli.shape[1]):
            if gpus and nodes.free_milli[row, device] == WHOLE_GPU:
                devices |= 1 << device
                gpus -= 1
    jobs.node[job], jobs.devices[job] = row, devices
    _book(nodes, row, lanes, lane, devices, 1)


@compiled
def give_back(nodes: Nodes, lanes: Lanes, lane: int, jobs: Jobs, job: int) -> None:
    """Give back what the job holds."""
    _book(nodes, jobs.node[job], lanes, lane, jobs.devices[job], -1)


@compiled
def _first_idle(nodes: Nodes, row: int) -> int:
    """Return the first idle GPU with a slot for a share."""
    for device in range(nodes.free_milli.shape[1]):
        if nodes.free_milli[row, device] == WHOLE_GPU and nodes.free_shares[row, device] > 0:
            return device
    return NOBODY


@compiled
def _book(nodes: Nodes, row: int, lanes: Lanes, lane: int, devices: int, sign: int) -> None:
    share = lanes.share[lane]
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
    nodes.free_cpu[row] -= sign * lanes.cpu[lane]
    nodes.free_memory[row] -= sign * lanes.memory[lane]
    nodes.version[row] += 1
