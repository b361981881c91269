# SPDX-License-Identifier: Apache-2.0
"""All-reduce of small buffers: NCCL, torch's symmetric memory, and our kernel.

Up to 64 KiB an all-reduce is all latency: NCCL launches a kernel that synchronises several times.
Where all GPUs of the gang are in one host and reach one another's memory, one kernel can read what
peers wrote (one-shot), or sum a part each and exchange the parts (two-shot). No multicast.

Two times are taken, in batches as `measure` says. `us`: calls from Python, one after another, by
CUDA events: what a program sees. `graph_us`: the same calls recorded in a CUDA graph and replayed:
what the GPU needs, and what a program gets that records its steps. The sums of the last batch of
each are checked.
"""

import itertools

import torch
import torch.distributed as dist

from gpupack_workloads.collectives.measure import median_seconds
from gpupack_workloads.collectives.methods import Method, methods
from gpupack_workloads.collectives.rank_data import ELEMENT_BYTES, RankData
from gpupack_workloads.collectives.series import Series
from gpupack_workloads.results import Scalar

SIZES = tuple(8 << power for power in range(14))
# In a longer graph each call of NCCL takes longer: 8 bytes on four H200s 14 us in one of 40 calls,
# 20 us in one of 120.
CALLS_PER_GRAPH = 40
GRAPHS = 3
# Calls of a batch; what graphs replay are the same.
REPEATS = GRAPHS * CALLS_PER_GRAPH
# Methods alternate between halves of a buffer: before any is timed, each half is checked.
FIRST = 3


def measure_small(rank_data: RankData) -> list[dict[str, Scalar]]:
    """Time and check every method at every small size."""
    ways = methods(rank_data, largest=max(SIZES) // ELEMENT_BYTES, repeats=REPEATS)
    return [
        measure_one(name, method, size, rank_data)
        for size in SIZES
        for name, method in ways.items()
        if size // ELEMENT_BYTES % method.multiple == 0
    ]


def measure_one(name: str, method: Method, size: int, rank_data: RankData) -> dict[str, Scalar]:
    """Time one method at one size both ways, and check it."""
    series = Series(name, method.calls(size // ELEMENT_BYTES), rank=rank_data.rank)
    for _ in range(FIRST):
        series.run()
    called = median_seconds(series.start, rank_data, repeats=REPEATS, ready=series.fill)
    series.check()
    return {
        "operation": "all-reduce",
        "method": name,
        "size_bytes": size,
        "us": round(called * 1e6, 2),
        "graph_us": round(replayed(series, rank_data) * 1e6, 2),
    }


def replayed(series: Series, rank_data: RankData) -> float:
    """Return the mean time of a call that CUDA graphs replay, which take turns."""
    turns = itertools.cycle([recorded(series, rank_data).replay for _ in range(GRAPHS)])

    def replay() -> None:
        next(turns)()

    seconds = median_seconds(replay, rank_data, repeats=GRAPHS, ready=series.fill)
    series.check()
    return seconds / CALLS_PER_GRAPH


def recorded(series: Series, rank_data: RankData) -> torch.cuda.CUDAGraph:
    """Return a graph of the calls whose turn it is."""
    dist.barrier()
    torch.cuda.synchronize(rank_data.device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(CALLS_PER_GRAPH):
            series.start()
    return graph
