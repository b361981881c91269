# SPDX-License-Identifier: Apache-2.0
"""Work of each process of `symmetric-memory`, and the result."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist

from gpupack_workloads.devices import describe, memory_errors
from gpupack_workloads.distributed.launch import launch
from gpupack_workloads.distributed.memory_check import require_memory_on_all_ranks
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import BadArgument, WorkloadError
from gpupack_workloads.reference.agreement import Agreement
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.settings import Gang
from gpupack_workloads.symmetric_memory import nvshmem
from gpupack_workloads.symmetric_memory.options import SEND_RECV, SymmetricMemoryOptions
from gpupack_workloads.symmetric_memory.shared_buffers import Host, host_of

Row = dict[str, Scalar]

DEFAULT_BYTES = {"cuda": 2**30, "cpu": 2**15}
SIMULATED_RANKS = 2


def start(options: SymmetricMemoryOptions, gang: Gang) -> Result:
    """Start the ranks: one for each GPU, two where there is none.

    Raises:
        BadArgument: the gang has several workers, sizes do not fit its ranks, or NVSHMEM alone was
            requested and is not there.
        NoSuchDevice: there is one GPU, or they do not reach one another.
        OutOfMemory: the buffers do not fit.
        WrongResult: what arrived, or a product, is wrong.
        WorkloadError: only NVSHMEM was requested, and it failed.
    """
    if gang.processes is None and gang.workers == 1 and not torch.cuda.is_available():
        gang = replace(gang, processes=SIMULATED_RANKS)
    return launch(measure, options, gang)


def measure(options: SymmetricMemoryOptions, backend: str) -> Result:
    """Run every requested part."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        # Sums of parts in 16 bits would be further off than one rounding.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        if set(options.parts) == {"nvshmem"}:
            require_nvshmem(rank)
        host = host_of(rank)
        size = options.size or DEFAULT_BYTES[rank.device.torch.type]
        rows: list[Row] = []
        agreement, reason = None, "not requested"
        if "one-sided" in options.parts:
            rows += one_sided_rows(host, rank, size, options.seed)
        if "matmul" in options.parts:
            found, agreement = matmul_rows(host, rank, options)
            rows += found
        if "nvshmem" in options.parts:
            found, reason = nvshmem_rows(rank, size, options.seed)
            rows += found
        if not rows:
            raise WorkloadError(f"--part nvshmem was requested, and {reason}")
        dist.barrier()
        return summarise(rows, rank, agreement=agreement, reason=reason)


def require_nvshmem(rank: Rank) -> None:
    """Make sure that NVSHMEM is there; all ranks must call this together.

    Raises:
        BadArgument: it is not.
    """
    if reason := nvshmem.agreed(nvshmem.missing(rank)):
        raise BadArgument(f"--part nvshmem was requested, and {reason}")


def one_sided_rows(host: Host, rank: Rank, size: int, seed: int) -> list[Row]:
    """Put and get."""
    from gpupack_workloads.symmetric_memory import one_sided  # noqa: PLC0415  imports Triton

    doing = f"puts and gets of {size} bytes"
    require_memory_on_all_ranks(one_sided.needed_bytes(size), rank.device, doing=doing)
    with memory_errors(doing):
        return one_sided.measure(host, rank, size, seed)


def nvshmem_rows(rank: Rank, size: int, seed: int) -> tuple[list[Row], str]:
    """Put and get by NVSHMEM."""
    from gpupack_workloads.symmetric_memory import one_sided  # noqa: PLC0415  imports Triton

    if not rank.device.simulated:
        # The second process takes its memory from the same GPU.
        torch.cuda.empty_cache()
    return nvshmem.measure(rank, one_sided.sizes(size), seed)


def matmul_rows(
    host: Host, rank: Rank, options: SymmetricMemoryOptions
) -> tuple[list[Row], Agreement]:
    """Gather and multiply."""
    from gpupack_workloads.symmetric_memory import gathered  # noqa: PLC0415  imports Triton

    # A rank that leaves before the others have met it would fail their start instead.
    with all_or_none():
        problems = gathered.problems_of(options, rank)
    doing = f"a product of {problems[-1].rows} rows"
    needed = gathered.needed_bytes(problems)
    require_memory_on_all_ranks(
        needed, rank.device, doing=doing, smaller="--rows, --depth or --columns"
    )
    with memory_errors(doing):
        return gathered.measure(host, problems)


def summarise(
    rows: Sequence[Row], rank: Rank, *, agreement: Agreement | None, reason: str
) -> Result:
    """Return how much faster than NCCL each way was, and from which size on."""
    products = [row for row in rows if row["part"] == "matmul"]
    puts = [row for row in rows if row["part"] != "matmul"]
    metrics = product_metrics(products) | put_metrics(puts, simulated=rank.device.simulated)
    metrics |= {"nvshmem": reason, "ranks": rank.ranks, "backend": rank.backend}
    if puts:
        metrics["wrong_bytes"] = 0
    if agreement is not None:
        metrics |= {"error": agreement.error, "error_bound": agreement.bound}
    elif puts:
        metrics |= {"error": 0.0, "error_bound": 0.0}
    return Result(
        workload="symmetric-memory",
        headline=headline(figure(metrics, rank), simulated=rank.device.simulated),
        verified=True,
        simulated=rank.device.simulated,
        metrics=metrics | describe(rank.device),
        rows=list(rows),
    )


def product_metrics(rows: Sequence[Row]) -> Row:
    """Return each way's best ratio to NCCL, at how many rows, and from how many on it pays."""
    from gpupack_workloads.symmetric_memory.gathered import (  # noqa: PLC0415  imports Triton
        OURS,
        pays_from,
    )

    metrics: Row = {}
    for way in (*OURS, "torch") if rows else ():
        name = f"{way}_nccl_ratio"
        own = [row for row in rows if name in row]
        if not own:
            continue
        best = max(own, key=lambda row: float(row[name]))
        metrics[name] = best[name]
        metrics[f"{way}_best_rows"] = best["rows"]
        pays = pays_from(own, way)
        # None where it never pays: 0 would read as "from the first row on".
        if pays is not None:
            metrics[f"{way}_pays_from_rows"] = pays
    return metrics


def put_metrics(rows: Sequence[Row], *, simulated: bool) -> Row:
    """Return the largest size's bandwidth relative to send and receive, and the smallest's time."""
    by_way = {
        way: [row for row in rows if row["way"] == way]
        for way in dict.fromkeys(str(row["way"]) for row in rows)
    }
    # Of the time of a CPU a ratio says nothing.
    rival = None if simulated else by_way.get(SEND_RECV)
    metrics: Row = {}
    for way, own in by_way.items():
        name = way.replace(" ", "_").replace("-", "_")
        metrics[f"{name}_gb_per_s"] = own[-1]["gb_per_s"]
        metrics[f"{name}_latency_us"] = own[0]["us"]
        if rival and way != SEND_RECV:
            ratio = float(rival[-1]["us"]) / float(own[-1]["us"])
            metrics[f"{name}_send_recv_ratio"] = round(ratio, 4)
            if pays := pays_to(own, rival):
                metrics[f"{name}_pays_to_bytes"] = pays
        metrics["size_bytes"] = own[-1]["size_bytes"]
    return metrics


def pays_to(rows: Sequence[Row], rival: Sequence[Row]) -> int:
    """Return up to which size a way is faster than its rival at every size; 0: not at the first."""
    found = 0
    for own, other in zip(rows, rival, strict=True):
        if float(own["us"]) >= float(other["us"]):
            break
        found = int(own["size_bytes"])
    return found


def figure(metrics: Row, rank: Rank) -> str:
    """Return the headline's figure; of CPUs no speed."""
    if rank.device.simulated:
        return f"all right, {rank.ranks} ranks"
    found = []
    if "kernel_nccl_ratio" in metrics:
        ratios = {way: float(metrics[f"{way}_nccl_ratio"]) for way in ("copies", "kernel")}
        best = max(ratios, key=lambda way: ratios[way])
        found.append(f"{ratios[best]:.2f} x NCCL at {metrics[f'{best}_best_rows']} rows")
    if "triton_put_gb_per_s" in metrics:
        found.append(f"put {float(metrics['triton_put_gb_per_s']):.1f} GB/s")
    return ", ".join([*found, f"{rank.ranks} ranks"])
