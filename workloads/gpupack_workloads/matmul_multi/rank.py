# SPDX-License-Identifier: Apache-2.0
"""What each process of `matmul-multi` does: make operands, check every layout, race them."""

import logging
from collections.abc import Sequence
from functools import partial

import torch
import torch.distributed as dist

from gpupack_workloads.devices import describe, memory_errors
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.distributed.reach import reach_one_another
from gpupack_workloads.distributed.room import require_room
from gpupack_workloads.kernels.agreement import Agreement, closest
from gpupack_workloads.matmul_multi.check import check
from gpupack_workloads.matmul_multi.compete import Timed, compete, entrants
from gpupack_workloads.matmul_multi.exchange import Exchange
from gpupack_workloads.matmul_multi.grid import Grid
from gpupack_workloads.matmul_multi.layout import Layout
from gpupack_workloads.matmul_multi.messages import Messages
from gpupack_workloads.matmul_multi.operands import B_T, A, Operands
from gpupack_workloads.matmul_multi.options import MatmulMultiOptions
from gpupack_workloads.matmul_multi.rows import Rows
from gpupack_workloads.matmul_multi.split_k import SplitK
from gpupack_workloads.results import Result, Scalar, headline

logger = logging.getLogger(__name__)

DEFAULT_SIZE = {"cuda": 32768, "cpu": 256}
TURNS = {"cuda": 5, "cpu": 1}
REPEATS = {"cuda": 2, "cpu": 1}
CUTS: dict[str, type[Rows | Grid | SplitK]] = {
    layout.name: layout for layout in (Rows, Grid, SplitK)
}
# Whole matrices: three for one GPU alone; for the gang's layouts, both ways of exchange, about
# nine; and what the check makes.
MATRICES = 14


def measure(options: MatmulMultiOptions, backend: str) -> Result:
    """Return how much faster the gang is than one GPU."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        operands = operands_of(options, rank)
        element = torch.empty((), dtype=operands.dtype).element_size()
        require_room(
            MATRICES * operands.size**2 * element, rank.device, doing=f"size {operands.size}"
        )
        with memory_errors(f"a product of size {operands.size}"):
            layouts = layouts_of(options.layouts, operands, rank)
            agreements = [checked(layout, operands, options.chunks) for layout, _ in layouts]
            alone = product_alone(operands)
            single, timed = compete(
                entrants(layouts, options.chunks),
                alone,
                device=rank.device.torch,
                turns=TURNS[rank.device.torch.type],
                repeats=REPEATS[rank.device.torch.type],
            )
        return summarise(single, timed, agreements, operands=operands, rank=rank)


def operands_of(options: MatmulMultiOptions, rank: Rank) -> Operands:
    """Return the matrices: bf16 on GPUs."""
    device = rank.device
    return Operands(
        size=options.size or DEFAULT_SIZE[device.torch.type],
        ranks=rank.ranks,
        dtype=torch.float32 if device.simulated else torch.bfloat16,
        device=device.torch,
        seed=options.seed,
    )


def layouts_of(names: Sequence[str], operands: Operands, rank: Rank) -> list[tuple[Layout, str]]:
    """Return every layout with every exchange that this gang can use."""
    return [
        (CUTS[name](operands, exchange, rank.index), exchange.name)
        for exchange in exchanges(operands, rank)
        for name in names
    ]


def exchanges(operands: Operands, rank: Rank) -> list[Exchange]:
    """Return messages, and copies between the GPUs of one host."""
    found: list[Exchange] = [Messages(operands.device, operands.dtype)]
    world = dist.group.WORLD
    if reach_one_another(rank) and world is not None:
        from gpupack_workloads.matmul_multi.copy_engine import (  # noqa: PLC0415  GPUs only
            CopyEngine,
        )

        found.append(CopyEngine(world, operands.device, operands.dtype))
    return found


def checked(layout: Layout, operands: Operands, chunks: Sequence[int]) -> Agreement:
    """Check a layout with every number of pieces; return what came closest to its bound."""
    found = []
    for count in chunks:
        layout.result().values.fill_(float("nan"))
        layout.multiply(count)
        doing = f"{layout.name} in {count} piece(s)"
        found.append(check(layout.result(), operands, doing=doing))
        logger.info("%s: error %.2e of %.2e", doing, found[-1].error, found[-1].bound)
    return closest(found)


def product_alone(operands: Operands) -> partial[torch.Tensor]:
    """Return the whole product on one GPU."""
    every = range(operands.ranks)
    a_mk = operands.block(A, every, every)
    b_nk = operands.block(B_T, every, every)
    return partial(torch.mm, a_mk, b_nk.T, out=torch.empty_like(a_mk))


def summarise(
    single: float,
    timed: Sequence[Timed],
    agreements: Sequence[Agreement],
    *,
    operands: Operands,
    rank: Rank,
) -> Result:
    """Return the fastest of each layout, and all of them."""
    flops = 2 * operands.size**3
    best = min(timed, key=lambda one: one.seconds)
    worst = closest(list(agreements))
    speedup = single / best.seconds
    metrics: dict[str, Scalar] = {
        "speedup_ratio": round(speedup, 4),
        "tflops": round(flops / best.seconds / 1e12, 4),
        "one_gpu_tflops": round(flops / single / 1e12, 4),
        "seconds": best.seconds,
        "one_gpu_seconds": single,
        "size": operands.size,
        "dtype": str(operands.dtype).removeprefix("torch."),
        "ranks": rank.ranks,
        "backend": rank.backend,
        "layout": best.entrant.layout,
        "exchange": best.entrant.exchange,
        "chunks": best.entrant.chunks,
        "error": worst.error,
        "error_bound": worst.bound,
    }
    for name in dict.fromkeys(one.entrant.layout for one in timed):
        own = min((one for one in timed if one.entrant.layout == name), key=lambda o: o.seconds)
        metrics[f"{name.replace('-', '_')}_speedup_ratio"] = round(single / own.seconds, 4)
    return Result(
        workload="matmul-multi",
        headline=headline(
            f"{speedup:.2f} x one GPU on {rank.ranks}", simulated=rank.device.simulated
        ),
        verified=True,
        simulated=rank.device.simulated,
        metrics=metrics | describe(rank.device),
        rows=[row(one, single, flops) for one in timed],
    )


def row(timed: Timed, single: float, flops: int) -> dict[str, Scalar]:
    """Return a row of the result's table."""
    return {
        "layout": timed.entrant.layout,
        "exchange": timed.entrant.exchange,
        "chunks": timed.entrant.chunks,
        "seconds": timed.seconds,
        "tflops": round(flops / timed.seconds / 1e12, 3),
        "speedup_ratio": round(single / timed.seconds, 4),
    }
