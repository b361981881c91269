# SPDX-License-Identifier: Apache-2.0
"""One rank's part, and the report of the first rank of each worker."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from mpi4py import MPI

from gpupack_workloads.devices import describe, memory_errors
from gpupack_workloads.distributed.transports import UNKNOWN
from gpupack_workloads.mpi import halo, ring, sums, torch_group
from gpupack_workloads.mpi.halo import Swept
from gpupack_workloads.mpi.memory_check import require_memory_on_all_ranks
from gpupack_workloads.mpi.options import MpiOptions
from gpupack_workloads.mpi.ring import Shift
from gpupack_workloads.mpi.sums import Summed
from gpupack_workloads.mpi.world import Memory, World, join
from gpupack_workloads.results import Communication, Result, Scalar, headline

logger = logging.getLogger(__name__)

DEFAULT_BYTES = {"cuda": 2**26, "cpu": 2**18}
DEFAULT_GRID = {"cuda": 8192, "cpu": 128}


@dataclass(frozen=True)
class Measured:
    """Findings of all ranks together."""

    hop_seconds: float
    shifts: Sequence[Shift]
    small: Summed
    large: Summed
    rival: Summed
    rival_name: str
    swept: Swept


def measure(options: MpiOptions) -> Result | None:
    """Do this rank's part; the first rank of each worker returns a result.

    Raises:
        WorkloadError: of this rank. It must end then without MPI_Finalize, which waits for others.
    """
    world = join(require_gpu=options.require_gpu)
    size = options.size or DEFAULT_BYTES[world.device.torch.type]
    grid = options.grid or DEFAULT_GRID[world.device.torch.type]
    sending, sweeping = f"messages of {size} bytes", f"a grid of {grid} rows and columns"
    require_memory_on_all_ranks(
        halo.need_of(grid, world.ranks), world, doing=sweeping, smaller="--grid"
    )
    require_memory_on_all_ranks(ring.need_of(size), world, doing=sending, smaller="--size")
    logger.info("rank %d of %d, messages in %s", world.index, world.ranks, world.memory)
    with memory_errors(f"{sending} and {sweeping}"):
        found = everything(world, size, grid, options)
    result = summarise(world, found)
    MPI.Finalize()
    return result if world.local_index == 0 else None


def everything(world: World, size: int, grid: int, options: MpiOptions) -> Measured:
    """Do every part in turn, with messages of this size and a grid of so many rows."""
    by_mpi = partial(sums.summed, world, seed=options.seed, by=world.sum)
    hop_seconds = ring.hop_seconds(world)
    shifts = list(ring.shifts(world, size))
    logger.info("ring done")
    small, large = by_mpi(sums.FLOAT_BYTES * 2), by_mpi(size)
    logger.info("all-reduce done")
    swept = halo.swept(world, grid, sweeps=options.sweeps, seed=options.seed)
    logger.info("halo exchange done")
    with torch_group.group(world) as backend:
        rival = sums.summed_in_place(world, size, seed=options.seed, by=torch_group.sum_in_place)
    logger.info("%s done", backend)
    return Measured(hop_seconds, shifts, small, large, rival, backend, swept)


def summarise(world: World, found: Measured) -> Result:
    """Make the result out of what was found."""
    last = found.shifts[-1]
    metrics: dict[str, Scalar] = {
        "ranks": world.ranks,
        "workers": world.workers,
        "mpi": MPI.Get_library_version().partition(",")[0].partition("\n")[0].strip("\0 "),
        "messages_in": str(world.memory),
        "cuda_aware": world.memory is Memory.CUDA_AWARE,
        "latency_us": round(found.hop_seconds * 1e6, 2),
        "ring_gb_per_s": round(last.gb_per_s, 4),
        "size_bytes": last.size_bytes,
        "allreduce_bus_gb_per_s": round(found.large.bus_gb_per_s, 4),
        "allreduce_latency_us": round(found.small.seconds * 1e6, 2),
        f"{found.rival_name}_bus_gb_per_s": round(found.rival.bus_gb_per_s, 4),
        "mpi_ratio": round(found.rival.seconds / found.large.seconds, 4),
        "wrong_elements": 0,
        "grid": found.swept.grid,
        "blocks": "x".join(str(parts) for parts in found.swept.blocks),
        "sweeps": found.swept.sweeps,
        "updates_per_s": round(found.swept.updates_per_s),
        "halo_share": round(found.swept.halo_seconds / found.swept.seconds, 4),
        "halo_error": found.swept.error,
        "halo_error_bound": found.swept.error_bound,
        "last_change": found.swept.change,
    }
    figure = f"{last.gb_per_s:.2f} GB/s ring, {world.ranks} ranks"
    return Result(
        workload="mpi",
        headline=headline(figure, simulated=world.device.simulated),
        verified=True,
        simulated=world.device.simulated,
        metrics=metrics | describe(world.device),
        communication=_communication(world, found),
        rows=[
            {
                "size_bytes": each.size_bytes,
                "ring_us": round(each.seconds * 1e6, 2),
                "ring_gb_per_s": round(each.gb_per_s, 4),
            }
            for each in found.shifts
        ],
    )


def _communication(world: World, found: Measured) -> Communication | None:
    """Return the all-reduce bandwidth; MPI has no call that returns its transport."""
    if world.ranks == 1:
        return None
    return Communication(transport=UNKNOWN, bus_gb_per_s=round(found.large.bus_gb_per_s, 3))
