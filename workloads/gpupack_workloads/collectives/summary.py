# SPDX-License-Identifier: Apache-2.0
"""Makes the result from the measurements."""

from collections.abc import Sequence

from gpupack_workloads.collectives.measure import Measurement
from gpupack_workloads.collectives.options import CollectivesOptions
from gpupack_workloads.devices import describe
from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.results import Result, Scalar, headline

Row = dict[str, Scalar]

OURS = "packets"


def summarise(
    measured: Sequence[Measurement],
    small: Sequence[Row],
    rank: Rank,
    options: CollectivesOptions,
) -> Result:
    """Return the figures of the largest size, the latency of the smallest, and all of them."""
    largest = [one for one in measured if one.size_bytes == largest_of(measured, one.operation)]
    first = best(largest, measured[0].operation)
    metrics: Row = {}
    for name in dict.fromkeys(one.operation for one in measured):
        metrics[f"{metric(name)}_bus_gb_per_s"] = round(best(largest, name).bus_gb_per_s, 3)
    metrics |= small_metrics(small)
    for name in dict.fromkeys(one.operation for one in measured):
        latency = next(one for one in measured if one.operation == name)
        metrics[f"{metric(name)}_latency_us"] = round(latency.seconds * 1e6, 2)
    metrics |= {
        "size_bytes": first.size_bytes,
        "rank_min_us": round(min(first.ranks_seconds) * 1e6, 2),
        "rank_max_us": round(max(first.ranks_seconds) * 1e6, 2),
        "dtype": options.dtype,
        "reduce_op": options.reduce_op,
        "ranks": rank.ranks,
        "backend": rank.backend,
        "wrong_elements": 0,
        **bound(measured),
    }
    return Result(
        workload="collectives",
        headline=headline(
            f"{first.bus_gb_per_s:.2f} GB/s {first.operation} bus, {rank.ranks} ranks",
            simulated=rank.device.simulated,
        ),
        verified=True,
        simulated=rank.device.simulated,
        metrics=metrics | describe(rank.device),
        rows=[*(one.row() for one in measured), *small],
    )


def bound(measured: Sequence[Measurement]) -> Row:
    """Return by how much of itself an element may be wrong, and was where that is nothing."""
    tolerance = max(one.tolerance for one in measured)
    return {"error_bound": tolerance} if tolerance else {"error": 0.0, "error_bound": 0.0}


def small_metrics(rows: Sequence[Row]) -> Row:
    """Return the slowest of the small sizes for each method: called from Python, and replayed."""
    metrics: Row = {}
    for method in dict.fromkeys(str(row["method"]) for row in rows):
        own = [row for row in rows if row["method"] == method]
        name = method.replace(" ", "_").replace("-", "_")
        metrics[f"small_{name}_us"] = max(float(row["us"]) for row in own)
        metrics[f"small_{name}_graph_us"] = max(float(row["graph_us"]) for row in own)
    return metrics


def largest_of(measured: Sequence[Measurement], operation: str) -> int:
    """Return the largest size of an operation."""
    return max(one.size_bytes for one in measured if one.operation == operation)


def best(largest: Sequence[Measurement], operation: str) -> Measurement:
    """Return the faster of in place and out of place."""
    return min((one for one in largest if one.operation == operation), key=lambda one: one.seconds)


def metric(operation: str) -> str:
    """Return an operation's name as part of a metric's."""
    return operation.replace("-", "_")
