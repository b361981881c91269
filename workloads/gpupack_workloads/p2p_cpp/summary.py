# SPDX-License-Identifier: Apache-2.0
"""Result of all pairs: the slowest pair's figures, and ratios of ways that took turns."""

from collections.abc import Mapping, Sequence

from gpupack_workloads.devices import Device, describe
from gpupack_workloads.results import Result, Scalar, headline

Row = dict[str, Scalar]

WORKLOAD = "p2p-cpp"
SPEEDS = (
    "memcpy",
    "loads",
    "stores",
    "host",
    "memcpy_both",
    "loads_both",
    "stores_both",
    "triton_loads",
    "triton_stores",
)
TIMES_US = ("latency_us", "triton_latency_us", "load_us", "swap_us")
# Name, and of which to which.
RATIOS = (
    ("loads_memcpy_ratio", "loads", "memcpy"),
    ("stores_memcpy_ratio", "stores", "memcpy"),
    ("memcpy_host_ratio", "memcpy", "host"),
    ("loads_triton_ratio", "loads", "triton_loads"),
    ("stores_triton_ratio", "stores", "triton_stores"),
    ("memcpy_both_ratio", "memcpy_both", "memcpy"),
)


def ratios(row: Mapping[str, Scalar]) -> Row:
    """Return each one's speed relative to its rival, of those that were timed."""
    found: Row = {}
    for name, one, other in RATIOS:
        speeds = [float(row[key]) for way in (one, other) if (key := f"{way}_gb_per_s") in row]
        if len(speeds) == len((one, other)):
            found[name] = round(speeds[0] / speeds[1], 4)
    return found


def summarise(device: Device, rows: Sequence[Row], *, largest: int, facts: Row) -> Result:
    """Return the slowest pair's figures of the largest copies, and every pair's.

    Where no pair has access no GPU was in another's memory, and the result is not verified.

    Args:
        device: the first GPU.
        rows: for each pair a row with its findings, then one for each size.
        largest: bytes of the largest copies.
        facts: metrics that come after the figures.
    """
    of_pairs = [row for row in rows if "peer_access" in row]
    timed = [row for row in rows if row.get("bytes") == largest]
    without = sum(row["peer_access"] is False and row["same_gpu"] is False for row in of_pairs)
    metrics: Row = {}
    for name in SPEEDS:
        metrics |= _worst(timed, f"{name}_gb_per_s", least=True)
    for name, *_ in RATIOS:
        metrics |= _worst(timed, name, least=True)
    for name in TIMES_US:
        metrics |= _worst(of_pairs, name, least=False)
    metrics |= {
        "pairs": len(of_pairs),
        "pairs_without_access": without,
        "same_gpu": any(row["same_gpu"] is True for row in of_pairs),
        "links": ",".join(sorted({str(row["link"]) for row in of_pairs})),
        "numa_nodes": ",".join(sorted({str(row["numa"]) for row in of_pairs})),
        "checked_bytes": sum(int(row["checked_bytes"]) for row in of_pairs),
        "wrong_bytes": 0,
        "error": 0.0,
        "error_bound": 0.0,
    }
    return Result(
        workload=WORKLOAD,
        headline=headline(figure(metrics), simulated=device.simulated),
        verified=without < len(of_pairs),
        simulated=device.simulated,
        metrics=metrics | facts | describe(device),
        rows=list(rows),
    )


def figure(metrics: Mapping[str, Scalar]) -> str:
    """Return the headline's figure."""
    memcpy = f"{float(metrics['memcpy_gb_per_s']):.1f} GB/s"
    if metrics["same_gpu"]:
        return f"{memcpy} within one GPU, there is no other"
    pairs = f"{metrics['pairs']} pair(s)"
    if "stores_gb_per_s" not in metrics:
        return f"no peer access; {memcpy} by memcpy, {pairs}"
    stores, loads = (float(metrics[f"{name}_gb_per_s"]) for name in ("stores", "loads"))
    return f"{memcpy}, stores {stores:.1f}, loads {loads:.1f}, {pairs}"


def _worst(rows: Sequence[Row], name: str, *, least: bool) -> Row:
    found = [float(row[name]) for row in rows if name in row]
    if not found:
        return {}
    return {name: min(found) if least else max(found)}
