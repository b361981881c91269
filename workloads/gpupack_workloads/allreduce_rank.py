# SPDX-License-Identifier: Apache-2.0
"""One process of an all-reduce: times doubling buffers, then checks their sums exactly.

Data are small whole numbers, so that every order of summation gives the same float: a sum is right
or wrong, and no tolerance hides an error. Position i of rank r holds (i + 31 r + seed) mod 61; sums
stay below 2^24, up to which a 32-bit float counts exactly, for 270000 ranks.

What is timed are buffers of zeros (repeated sums of anything else would overflow); the check comes
after it, on the same buffer.
"""

import logging
from functools import partial

import torch
import torch.distributed as dist

from gpupack_workloads.bandwidth import algorithm_gb_per_s, all_reduce_bus_gb_per_s
from gpupack_workloads.devices import Device, describe, memory_errors
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.distributed.together import all_or_none
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.settings import Options
from gpupack_workloads.timing import seconds_per_call

logger = logging.getLogger(__name__)

ELEMENT_BYTES = 4
SMALLEST_BYTES = 8
DEFAULT_BYTES = {"cuda": 2**30, "cpu": 2**22}
REPEATS = {"cuda": 20, "cpu": 5}
MODULUS = 61
RANK_STEP = 31


def measure(options: Options, backend: str) -> Result:
    """Join the group, measure every size, return the result."""
    with (
        group(backend, require_gpu=options.require_gpu) as rank,
        memory_errors("the largest buffer"),
    ):
        seconds = {
            size: measure_size(size, device=rank.device, seed=options.seed)
            for size in sizes(options.size or DEFAULT_BYTES[rank.device.torch.type])
        }
        return summarise(seconds, rank=rank)


def sizes(largest: int) -> list[int]:
    """Return buffer sizes in bytes, doubling up to the largest."""
    doublings = (largest // SMALLEST_BYTES).bit_length()
    return [SMALLEST_BYTES << power for power in range(doublings)]


def measure_size(size: int, *, device: Device, seed: int) -> float:
    """Return the slowest rank's seconds for one all-reduce of this many bytes."""
    buffer = torch.zeros(size // ELEMENT_BYTES, device=device.torch)
    mine = seconds_per_call(
        partial(dist.all_reduce, buffer),
        device=device.torch,
        repeats=REPEATS[device.torch.type],
    )
    check_sum(buffer, rank=dist.get_rank(), ranks=dist.get_world_size(), seed=seed)
    slowest = torch.tensor([mine], dtype=torch.float64, device=device.torch)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        logger.info("%d bytes: %.1f us", size, slowest.item() * 1e6)
    return float(slowest.item())


def check_sum(buffer: torch.Tensor, *, rank: int, ranks: int, seed: int) -> None:
    """Fill the buffer, sum it over all ranks and compare with the sum computed here."""
    buffer.copy_(term(buffer, rank=rank, seed=seed))
    dist.all_reduce(buffer)
    expected = torch.zeros_like(buffer)
    for other in range(ranks):
        expected += term(buffer, rank=other, seed=seed)
    wrong = int((buffer != expected).sum().item())
    with all_or_none():
        if wrong:
            raise WrongResult(f"rank {rank}: {wrong} of {buffer.numel()} sums are wrong")


def term(like: torch.Tensor, *, rank: int, seed: int) -> torch.Tensor:
    """Return what a rank adds."""
    positions = torch.arange(like.numel(), device=like.device, dtype=torch.int32)
    return ((positions + (RANK_STEP * rank + seed) % MODULUS) % MODULUS).to(like.dtype)


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
