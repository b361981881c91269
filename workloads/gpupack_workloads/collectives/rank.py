# SPDX-License-Identifier: Apache-2.0
"""What each process of `collectives` does."""

import logging
from collections.abc import Iterator, Mapping, Sequence

import torch.distributed as dist

from gpupack_workloads.collectives.all_gather import AllGather
from gpupack_workloads.collectives.all_reduce import AllReduce
from gpupack_workloads.collectives.all_to_all import AllToAll
from gpupack_workloads.collectives.broadcast import Broadcast
from gpupack_workloads.collectives.measure import (
    Measurement,
    measure,
    needed_bytes,
    sizes,
)
from gpupack_workloads.collectives.operation import Operation
from gpupack_workloads.collectives.options import CollectivesOptions
from gpupack_workloads.collectives.rank_data import RankData
from gpupack_workloads.collectives.reduce_scatter import ReduceScatter
from gpupack_workloads.collectives.send_recv import SendRecv
from gpupack_workloads.collectives.small import measure_small
from gpupack_workloads.collectives.summary import summarise
from gpupack_workloads.devices import memory_errors
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.distributed.reach import reach_one_another
from gpupack_workloads.distributed.room import require_room
from gpupack_workloads.results import Result, Scalar

logger = logging.getLogger(__name__)

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        AllReduce(), AllGather(), ReduceScatter(), Broadcast(), AllToAll(), SendRecv(),
    )
}  # fmt: skip
DEFAULT_BYTES = {"cuda": 2**32, "cpu": 2**16}


def measure_all(options: CollectivesOptions, backend: str) -> Result:
    """Measure every operation at every size, then small all-reduces."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        largest = largest_bytes(options.size, rank, DEFAULT_BYTES)
        wanted = sizes(options.smallest, largest)
        measured = list(measurements(options.operations, wanted, rank, seed=options.seed))
        return summarise(measured, small_rows(options, rank), rank)


def measure_largest(options: CollectivesOptions, backend: str) -> Result:
    """Measure an all-reduce of the largest size."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        largest = largest_bytes(options.size, rank, DEFAULT_BYTES)
        one = sizes(options.smallest, largest)[-1:]
        measured = list(measurements(("all-reduce",), one, rank, seed=options.seed))
        return summarise(measured, [], rank)


def largest_bytes(wanted: int | None, rank: Rank, defaults: Mapping[str, int]) -> int:
    """Return the largest buffer's size, having made sure that it fits."""
    device = rank.device
    largest = wanted or defaults[device.torch.type]
    needed = needed_bytes(largest, device.torch)
    require_room(needed, device, doing=f"a buffer of {largest} bytes")
    return largest


def measurements(
    names: Sequence[str], wanted: Sequence[int], rank: Rank, *, seed: int
) -> Iterator[Measurement]:
    """Measure each operation at each size, in every way that it has."""
    rank_data = rank_data_of(rank, seed)
    for name in names:
        for size in wanted:
            for in_place in OPERATIONS[name].in_place:
                with memory_errors(f"{name} of {size} bytes"):
                    one = measure(OPERATIONS[name], size, rank_data, in_place=in_place)
                if rank.index == 0:
                    logger.info(
                        "%s %d bytes: %.1f us, bus %.2f GB/s",
                        *(name, one.size_bytes, one.seconds * 1e6, one.bus_gb_per_s),
                    )
                yield one


def small_rows(options: CollectivesOptions, rank: Rank) -> list[dict[str, Scalar]]:
    """Measure small all-reduces, where the GPUs of all ranks reach one another's memory."""
    if "all-reduce" not in options.operations or not reach_one_another(rank):
        return []
    rows = measure_small(rank_data_of(rank, options.seed))
    dist.barrier()
    return rows


def rank_data_of(rank: Rank, seed: int) -> RankData:
    """Return where this rank is, with its data's seed."""
    return RankData(rank=rank.index, ranks=rank.ranks, device=rank.device.torch, seed=seed)
