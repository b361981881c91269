# SPDX-License-Identifier: Apache-2.0
"""All-reduce of small buffers: NCCL, torch's symmetric memory, and our kernel, side by side.

Up to 64 KiB an all-reduce is all latency: NCCL launches a kernel that synchronises several times.
Where all GPUs of the gang are in one host and reach one another's memory, one kernel can read what
peers wrote (one-shot), or sum a part each and exchange the parts (two-shot). No multicast.

Two times are taken, in batches as `measure` says. `us`: calls from Python, one after another, by
CUDA events: what a program sees. `graph_us`: the same calls recorded in a CUDA graph and replayed:
what the GPU needs, and what a program gets that records its steps.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from gpupack_workloads.collectives.measure import median_seconds
from gpupack_workloads.collectives.place import ELEMENT_BYTES, Place, count_wrong, fill
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.results import Scalar

SIZES = tuple(8 << power for power in range(14))
REPEATS = 100
CALLS_PER_GRAPH = 40
# Elements that torch moves at once.
VECTOR = 4
GRAPH_REPEATS = 3

# Sums a buffer over all ranks; returns where the sum is.
Call = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Method:
    """A way to sum small buffers.

    Attributes:
        send: what is summed; filled before a call.
        bind: returns the call that sums so many of the first elements.
        multiple: their number must be a multiple of it.
    """

    send: torch.Tensor
    bind: Callable[[int], Call]
    multiple: int = 1


def measure_small(place: Place) -> list[dict[str, Scalar]]:
    """Time and check every method at every small size."""
    largest = max(SIZES) // ELEMENT_BYTES
    methods = {
        "nccl": nccl(place, largest),
        "symm_mem one-shot": torch_one_shot(place, largest),
        "symm_mem two-shot": torch_two_shot(place, largest),
        "packets": packets(place, largest),
    }
    return [
        measure_one(name, method, size, place)
        for size in SIZES
        for name, method in methods.items()
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


def nccl(place: Place, largest: int) -> Method:
    """NCCL as torch calls it."""
    buffer = place.empty(largest)

    def bind(elements: int) -> Call:
        part = buffer[:elements]

        def call() -> torch.Tensor:
            dist.all_reduce(part)
            return part

        return call

    return Method(buffer, bind)


def torch_one_shot(place: Place, largest: int) -> Method:
    """One kernel of torch: every rank reads all buffers between two barriers."""
    group, buffer = symmetric_buffer(place, largest)
    total = place.empty(largest)

    def bind(elements: int) -> Call:
        return functools.partial(
            torch.ops.symm_mem.one_shot_all_reduce_out,
            *(buffer[:elements], "sum", group.group_name, total[:elements]),
        )

    return Method(buffer, bind)


def torch_two_shot(place: Place, largest: int) -> Method:
    """One kernel of torch: every rank sums its part, then reads the others'."""
    group, buffer = symmetric_buffer(place, largest)

    def bind(elements: int) -> Call:
        return functools.partial(
            torch.ops.symm_mem.two_shot_all_reduce_,
            *(buffer[:elements], "sum", group.group_name),
        )

    return Method(buffer, bind, multiple=place.ranks * VECTOR)


def packets(place: Place, largest: int) -> Method:
    """Our kernel: see kernels/all_reduce."""
    from gpupack_workloads.kernels.all_reduce.launch import (  # noqa: PLC0415  imports Triton
        symmetric_all_reduce,
    )

    summing = symmetric_all_reduce(world(), place.device)
    send, total = place.empty(largest), place.empty(largest)

    def bind(elements: int) -> Call:
        mine, sums = send[:elements], total[:elements]

        launch = summing.bind(mine, sums)

        def call() -> torch.Tensor:
            launch()
            return sums

        return call

    return Method(send, bind)


def symmetric_buffer(place: Place, elements: int) -> tuple[dist.ProcessGroup, torch.Tensor]:
    """Return a buffer of zeros that every rank can reach."""
    import torch.distributed._symmetric_memory as symmetric  # noqa: PLC0415  only GPUs have it

    group = world()
    buffer = symmetric.empty(elements, dtype=torch.float32, device=place.device)
    symmetric.rendezvous(buffer, group)
    return group, buffer.zero_()


def world() -> dist.ProcessGroup:
    """Return the group of all ranks."""
    group = dist.group.WORLD
    if group is None:
        raise RuntimeError("there is no process group")
    return group
