# SPDX-License-Identifier: Apache-2.0
"""All-reduce of small buffers: NCCL, torch's symmetric memory, and our kernel, side by side.

Up to 64 KiB an all-reduce is all latency: NCCL launches a kernel that synchronises several times.
Where all GPUs of the gang are in one host and reach one another's memory, one kernel can read what
peers wrote (one-shot), or sum a part each and exchange the parts (two-shot). No multicast.

Two times are taken, in batches as `measure` says. `us`: calls from Python, one after another, by
CUDA events: what a program sees. `graph_us`: the same calls recorded in a CUDA graph and replayed:
what the GPU needs, and what a program gets that records its steps.
"""

import torch
import torch.distributed as dist

from gpupack_workloads.collectives.measure import median_seconds
from gpupack_workloads.collectives.methods import Call, Method, methods
from gpupack_workloads.collectives.place import ELEMENT_BYTES, Place, count_wrong, fill
from gpupack_workloads.distributed.together import all_or_none
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.results import Scalar

SIZES = tuple(8 << power for power in range(14))
REPEATS = 100
CALLS_PER_GRAPH = 40
GRAPH_REPEATS = 3


def measure_small(place: Place) -> list[dict[str, Scalar]]:
    """Time and check every method at every small size."""
    largest = max(SIZES) // ELEMENT_BYTES
    ways = methods(place, largest)
    return [
        measure_one(name, method, size, place)
        for size in SIZES
        for name, method in ways.items()
        if size // ELEMENT_BYTES % method.multiple == 0
    ]


def measure_one(name: str, method: Method, size: int, place: Place) -> dict[str, Scalar]:
    """Check one method at one size, then time it both ways."""
    elements = size // ELEMENT_BYTES
    call = method.bind(elements)
    check(name, call, method.send[:elements], place)
    method.send.zero_()
    called = median_seconds(call, place, repeats=REPEATS)
    return {
        "operation": "all-reduce",
        "method": name,
        "size_bytes": size,
        "us": round(called * 1e6, 2),
        "graph_us": round(replayed(call, place) * 1e6, 2),
    }


def check(name: str, call: Call, send: torch.Tensor, place: Place) -> None:
    """Sum every rank's data, several times, since methods alternate between halves of a buffer."""
    for _ in range(3):
        fill(send, place.data(place.rank))
        wrong = count_wrong(call(), place.sum)
        with all_or_none():
            if wrong:
                raise WrongResult(
                    f"rank {place.rank}: {name}: {wrong} of {send.numel()} sums are wrong"
                )


def replayed(call: Call, place: Place) -> float:
    """Return the mean time of a call that a CUDA graph replays."""
    dist.barrier()
    torch.cuda.synchronize(place.device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(CALLS_PER_GRAPH):
            call()
    return median_seconds(graph.replay, place, repeats=GRAPH_REPEATS) / CALLS_PER_GRAPH
