# SPDX-License-Identifier: Apache-2.0
"""One process of an all-reduce: times doubling buffers and checks their sums exactly.

It is the first operation of `collectives`, as a separate workload.
"""

from collections.abc import Sequence

from gpupack_workloads.bandwidth import algorithm_gb_per_s
from gpupack_workloads.collectives.measure import Measurement, sizes
from gpupack_workloads.collectives.options import SMALLEST_BYTES, CollectivesOptions
from gpupack_workloads.collectives.rank import largest_bytes, measurements
from gpupack_workloads.devices import describe
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.settings import Options

DEFAULT_BYTES = {"cuda": 2**30, "cpu": 2**22}


def measure(options: Options, backend: str) -> Result:
    """Join the group, measure every size, return the result."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        usual = CollectivesOptions(size=options.size, seed=options.seed)
        wanted = sizes(SMALLEST_BYTES, largest_bytes(usual, rank, DEFAULT_BYTES))
        measured = list(measurements(("all-reduce",), wanted, rank, usual))
        return summarise(measured, rank=rank)


def summarise(measured: Sequence[Measurement], *, rank: Rank) -> Result:
    """Make the result out of the times, of sizes that grow."""
    smallest, largest = measured[0], measured[-1]
    metrics: dict[str, Scalar] = {
        "bus_gb_per_s": round(largest.bus_gb_per_s, 4),
        "algorithm_gb_per_s": round(
            algorithm_gb_per_s(size_bytes=largest.size_bytes, seconds=largest.seconds), 4
        ),
        "size_bytes": largest.size_bytes,
        "ranks": rank.ranks,
        "backend": rank.backend,
        "latency_us": round(smallest.seconds * 1e6, 1),
        "best_bus_gb_per_s": round(max(one.bus_gb_per_s for one in measured), 4),
        "wrong_elements": 0,
    }
    figure = f"{largest.bus_gb_per_s:.2f} GB/s bus, {rank.ranks} ranks"
    return Result(
        workload="allreduce",
        headline=headline(figure, simulated=rank.device.simulated),
        verified=True,
        simulated=rank.device.simulated,
        metrics=metrics | describe(rank.device),
    )
