# SPDX-License-Identifier: Apache-2.0
"""One process of an all-reduce: times doubling buffers, then checks their sums exactly.

Data and check are those of `collectives`: whole numbers, so that a sum is right or wrong. What is
timed are buffers of zeros (repeated sums of anything else would overflow); the check comes after
it, on the same buffer.
"""

import logging
from functools import partial

import torch
import torch.distributed as dist

from gpupack_workloads.bandwidth import algorithm_gb_per_s, all_reduce_bus_gb_per_s
from gpupack_workloads.collectives import measure as collective
from gpupack_workloads.collectives.all_reduce import AllReduce
from gpupack_workloads.collectives.place import ELEMENT_BYTES, Place
from gpupack_workloads.devices import describe, memory_errors
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.settings import Options
from gpupack_workloads.timing import seconds_per_call

logger = logging.getLogger(__name__)

SMALLEST_BYTES = 8
DEFAULT_BYTES = {"cuda": 2**30, "cpu": 2**22}
REPEATS = {"cuda": 20, "cpu": 5}


def measure(options: Options, backend: str) -> Result:
    """Join the group, measure every size, return the result."""
    with (
        group(backend, require_gpu=options.require_gpu) as rank,
        memory_errors("the largest buffer"),
    ):
        place = Place(rank.index, rank.ranks, rank.device.torch, options.seed)
        seconds = {
            size: measure_size(size, place)
            for size in sizes(options.size or DEFAULT_BYTES[rank.device.torch.type])
        }
        return summarise(seconds, rank=rank)


def sizes(largest: int) -> list[int]:
    """Return buffer sizes in bytes, doubling up to the largest."""
    return collective.sizes(SMALLEST_BYTES, largest)


def measure_size(size: int, place: Place) -> float:
    """Return the slowest rank's seconds for one all-reduce of this many bytes."""
    operation = AllReduce()
    buffers = operation.buffers(size // ELEMENT_BYTES, place, in_place=True)
    mine = seconds_per_call(
        partial(operation.start, buffers, place),
        device=place.device,
        repeats=REPEATS[place.device.type],
    )
    collective.check(operation, buffers, place)
    slowest = torch.tensor([mine], dtype=torch.float64, device=place.device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if place.rank == 0:
        logger.info("%d bytes: %.1f us", size, slowest.item() * 1e6)
    return float(slowest.item())


def summarise(seconds: dict[int, float], *, rank: Rank) -> Result:
    """Make the result out of the times."""
    bus = {
        size: all_reduce_bus_gb_per_s(size_bytes=size, seconds=time, ranks=rank.ranks)
        for size, time in seconds.items()
    }
    largest = max(seconds)
    metrics: dict[str, Scalar] = {
        "bus_gb_per_s": round(bus[largest], 4),
        "algorithm_gb_per_s": round(
            algorithm_gb_per_s(size_bytes=largest, seconds=seconds[largest]), 4
        ),
        "size_bytes": largest,
        "ranks": rank.ranks,
        "backend": rank.backend,
        "latency_us": round(seconds[min(seconds)] * 1e6, 1),
        "best_bus_gb_per_s": round(max(bus.values()), 4),
        "wrong_elements": 0,
    }
    return Result(
        workload="allreduce",
        headline=headline(
            f"{bus[largest]:.2f} GB/s bus, {rank.ranks} ranks", simulated=rank.device.simulated
        ),
        verified=True,
        simulated=rank.device.simulated,
        metrics=metrics | describe(rank.device),
    )
