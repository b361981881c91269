# SPDX-License-Identifier: Apache-2.0
"""Checks and times every pair of this container's GPUs, and makes the result."""

import itertools
import logging
from collections.abc import Sequence

import torch

from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.errors import NoSuchDevice
from gpupack_workloads.memory import require_memory
from gpupack_workloads.p2p.pair import Pair
from gpupack_workloads.p2p.simulated import measure_simulated
from gpupack_workloads.p2p.topology import Topology, read_topology
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.settings import Options

logger = logging.getLogger(__name__)

Row = dict[str, Scalar]

DEFAULT_BYTES = {"cuda": 2**30, "cpu": 2**20}
MIN_GPUS = 2
COPY, HOST, LATENCY = "copy_gb_per_s", "host_gb_per_s", "latency_us"
BANDWIDTHS = (COPY, "kernel_read_gb_per_s", "kernel_write_gb_per_s", HOST)
# Memory for checking, besides the one buffer that a GPU holds at a time.
SLACK_BYTES = 2**30


def survey(options: Options) -> Result:
    """Check every pair, then time it.

    Raises:
        NoSuchDevice: there is one GPU only.
        OutOfMemory: the buffers do not fit.
        WrongResult: a byte is wrong.
    """
    device = choose_device(require_gpu=options.require_gpu)
    size = options.size or DEFAULT_BYTES[device.torch.type]
    if device.simulated:
        row = {"reader": 0, "owner": 1} | measure_simulated(size, options.seed)
        return summarise([row], size, device, checked=size)
    require_pairs(size)
    topology = read_topology()
    with memory_errors(f"buffers of {size} bytes"):
        rows = [row_of(pair, size, options.seed, topology) for pair in pairs()]
    return summarise(rows, size, device, checked=sum(int(row["checked_bytes"]) for row in rows))


def require_pairs(size: int) -> None:
    """Check before any work that there are GPUs and free memory on each."""
    count = torch.cuda.device_count()
    if count < MIN_GPUS:
        raise NoSuchDevice(f"p2p needs two GPUs in one container; this one has {count}")
    for index in range(count):
        gpu = Device(torch.device("cuda", index), f"GPU {index}")
        require_memory(gpu, doing=f"a buffer of {size} bytes", on_device=size + SLACK_BYTES)


def pairs() -> list[tuple[int, int]]:
    """Return reader and owner, both ways."""
    return list(itertools.permutations(range(torch.cuda.device_count()), 2))


def row_of(numbers: tuple[int, int], size: int, seed: int, topology: Topology) -> Row:
    """Check and time one pair."""
    from gpupack_workloads.p2p.access import check  # noqa: PLC0415  imports Triton
    from gpupack_workloads.p2p.speeds import measure  # noqa: PLC0415  imports Triton

    pair = Pair(*numbers)
    uuids = [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in numbers]
    row: Row = {
        "reader": pair.reader,
        "owner": pair.owner,
        "link": topology.link(*uuids),
        "numa": "-".join(topology.node(uuid) for uuid in uuids),
        "peer_access": pair.accessible,
        "checked_bytes": 0,
    }
    if pair.accessible:
        pair.open()
        row["checked_bytes"] = check(pair, size, seed)
    row |= measure(pair, size, seed)
    torch.cuda.empty_cache()
    logger.info("GPU %d from GPU %d: %s", *numbers, row)
    return row


def summarise(rows: Sequence[Row], size: int, device: Device, *, checked: int) -> Result:
    """Return the slowest pair's figures, and every pair's.

    Where no pair has access no GPU was in another's memory, and the result is not verified.
    """
    metrics = speeds(rows) | {
        "pairs": len(rows),
        "pairs_without_access": sum(row.get("peer_access") is False for row in rows),
        "links": ",".join(sorted({str(row.get("link", "none")) for row in rows})),
        "numa_nodes": ",".join(sorted({str(row.get("numa", "none")) for row in rows})),
        "size_bytes": size,
        "checked_bytes": checked,
    }
    if checked:
        metrics |= {"wrong_bytes": 0, "error": 0.0, "error_bound": 0.0}
    return Result(
        workload="p2p",
        headline=headline(figure(metrics), simulated=device.simulated),
        verified=checked > 0,
        simulated=device.simulated,
        metrics=metrics | describe(device),
        rows=list(rows),
    )


def speeds(rows: Sequence[Row]) -> Row:
    """Return the slowest pair's figure of everything that was measured."""
    measured = {name: [row[name] for row in rows if name in row] for name in (*BANDWIDTHS, LATENCY)}
    found: Row = {
        name: max(map(float, values)) if name == LATENCY else min(map(float, values))
        for name, values in measured.items()
        if values
    }
    if COPY in found and HOST in found:
        found["copy_host_ratio"] = round(float(found[COPY]) / float(found[HOST]), 2)
    return found


def figure(metrics: Row) -> str:
    """Return the headline's figure."""
    pairs = f"{metrics['pairs']} pair(s)"
    if COPY in metrics:
        return f"{float(metrics[COPY]):.1f} GB/s, {pairs}"
    return f"no peer access; {float(metrics[HOST]):.1f} GB/s by host, {pairs}"
