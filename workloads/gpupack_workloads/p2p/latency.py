# SPDX-License-Identifier: Apache-2.0
"""Measures the latency of a number from one GPU to another.

Half the time that it takes there and back between two kernels that each wait for it in their own
memory.
"""

import statistics

import torch

from gpupack_kernels.communication.peer.launch import ping
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.p2p.pair import Pair

# The median of so many batches is used: a virtual machine pauses now and then.
BATCHES = 5
ROUNDS = 1024


def latency(pair: Pair) -> float:
    """Return the seconds in which a number written here is seen there.

    Raises:
        WrongResult: a number never came.
    """
    # Kernels are loaded before either waits for the other.
    bounce(pair, rounds=0)
    return statistics.median(bounce(pair, rounds=ROUNDS) for _ in range(BATCHES)) / (2 * ROUNDS)


def bounce(pair: Pair, *, rounds: int) -> float:
    """Send a number there and back; return the seconds of all rounds together.

    Raises:
        WrongResult: a number never came.
    """
    sides = (pair.here, pair.there)
    flags = [torch.zeros(1, dtype=torch.int32, device=side) for side in sides]
    done = [torch.zeros(1, dtype=torch.int32, device=side) for side in sides]
    torch.cuda.synchronize(pair.there)
    with torch.cuda.device(pair.there):
        ping(flags[1], flags[0], done[1], rounds=rounds, leader=False)
    with torch.cuda.device(pair.here):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        ping(flags[0], flags[1], done[0], rounds=rounds, leader=True)
        end.record()
        torch.cuda.synchronize(pair.here)
    least = min(int(count.item()) for count in done)
    if least != rounds:
        raise WrongResult(
            f"a number got lost between GPU {pair.reader} and GPU {pair.owner} in round {least + 1}"
            f" of {rounds}"
        )
    return float(start.elapsed_time(end)) / 1000
