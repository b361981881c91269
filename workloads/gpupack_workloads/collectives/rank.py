# SPDX-License-Identifier: Apache-2.0
"""Work of each process of `collectives`."""

import logging
from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.distributed as dist

from gpupack_workloads.collectives.all_gather import AllGather
from gpupack_workloads.collectives.all_reduce import AllReduce
from gpupack_workloads.collectives.all_to_all import AllToAll
from gpupack_workloads.collectives.broadcast import Broadcast
from gpupack_workloads.collectives.gather import Gather
from gpupack_workloads.collectives.measure import (
    Calls,
    Measurement,
    measure,
    needed_bytes,
    require_served,
    sizes,
)
from gpupack_workloads.collectives.operation import Operation
from gpupack_workloads.collectives.options import REDUCING, CollectivesOptions
from gpupack_workloads.collectives.rank_data import RankData
from gpupack_workloads.collectives.reduce import Reduce
from gpupack_workloads.collectives.reduce_scatter import ReduceScatter
from gpupack_workloads.collectives.scatter import Scatter
from gpupack_workloads.collectives.send_recv import SendRecv
from gpupack_workloads.collectives.small import measure_small
from gpupack_workloads.collectives.summary import summarise
from gpupack_workloads.devices import memory_errors
from gpupack_workloads.distributed.memory_check import require_memory_on_all_ranks
from gpupack_workloads.distributed.peer_access import can_access_peers
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.results import Result, Scalar

logger = logging.getLogger(__name__)

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        AllReduce(), AllGather(), ReduceScatter(), Broadcast(), AllToAll(), SendRecv(), Reduce(),
        Gather(), Scatter(),
    )
}  # fmt: skip
DEFAULT_BYTES = {"cuda": 2**32, "cpu": 2**16}


def measure_all(options: CollectivesOptions, backend: str) -> Result:
    """Measure every operation at every size, then small all-reduces."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        largest = largest_bytes(options, rank, DEFAULT_BYTES)
        wanted = sizes(options.smallest, largest)
        measured = list(measurements(options.operations, wanted, rank, options))
        return summarise(measured, small_rows(options, rank), rank, options)


def measure_largest(options: CollectivesOptions, backend: str) -> Result:
    """Measure an all-reduce of the largest size."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        largest = largest_bytes(options, rank, DEFAULT_BYTES)
        one = sizes(options.smallest, largest)[-1:]
        measured = list(measurements(("all-reduce",), one, rank, options))
        return summarise(measured, [], rank, options)


def largest_bytes(options: CollectivesOptions, rank: Rank, defaults: Mapping[str, int]) -> int:
    """Return the largest buffer's size, having made sure that it fits."""
    device = rank.device
    largest = options.size or defaults[device.torch.type]
    needed = needed_bytes(
        largest,
        device.torch,
        element_bytes=dtype_of(options).itemsize,
        iterations=options.iterations,
    )
    smaller = "--size" if options.iterations is None else "--size or --iterations"
    require_memory_on_all_ranks(
        needed, device, doing=f"a buffer of {largest} bytes", smaller=smaller
    )
    return largest


def measurements(
    names: Sequence[str], wanted: Sequence[int], rank: Rank, options: CollectivesOptions
) -> Iterator[Measurement]:
    """Measure each operation at each size, in every way that it has."""
    often = Calls(options.iterations, options.warmup)
    for name in names:
        rank_data = rank_data_of(
            rank,
            options.seed,
            dtype=dtype_of(options),
            reduce_op=options.reduce_op if name in REDUCING else "sum",
        )
        if not options.usual:
            require_served(OPERATIONS[name], rank_data)
        for size in wanted:
            for in_place in OPERATIONS[name].in_place:
                with memory_errors(f"{name} of {size} bytes"):
                    one = measure(OPERATIONS[name], size, rank_data, in_place=in_place, often=often)
                if rank.index == 0:
                    logger.info(
                        "%s %d bytes: %.1f us, bus %.2f GB/s",
                        *(name, one.size_bytes, one.seconds * 1e6, one.bus_gb_per_s),
                    )
                yield one


def small_rows(options: CollectivesOptions, rank: Rank) -> list[dict[str, Scalar]]:
    """Measure small all-reduces, where the GPUs of all ranks reach one another's memory."""
    wanted = "all-reduce" in options.operations and options.usual
    if not wanted or not can_access_peers(rank):
        return []
    rows = measure_small(rank_data_of(rank, options.seed))
    dist.barrier()
    return rows


def rank_data_of(
    rank: Rank, seed: int, *, dtype: torch.dtype = torch.float32, reduce_op: str = "sum"
) -> RankData:
    """Return where this rank is, with its data's seed, type and reduction."""
    return RankData(
        rank=rank.index,
        ranks=rank.ranks,
        device=rank.device.torch,
        seed=seed,
        dtype=dtype,
        reduce_op=reduce_op,
    )


def dtype_of(options: CollectivesOptions) -> torch.dtype:
    """Return the elements' type."""
    dtype: torch.dtype = getattr(torch, options.dtype)
    return dtype
