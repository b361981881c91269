# SPDX-License-Identifier: Apache-2.0
"""Work of each process of `matmul-multi`: make operands, check every layout, time them.

The results of the timed calls are checked once more, with the product of one GPU.
"""

import logging
from collections.abc import Sequence
from functools import partial

import torch
import torch.distributed as dist

from gpupack_workloads.devices import memory_errors
from gpupack_workloads.distributed.memory_check import require_memory_on_all_ranks
from gpupack_workloads.distributed.peer_access import can_access_peers
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.matmul_multi.check import check
from gpupack_workloads.matmul_multi.exchange import Exchange
from gpupack_workloads.matmul_multi.grid import Grid
from gpupack_workloads.matmul_multi.layout import Block, Cuts, Layout, multiply
from gpupack_workloads.matmul_multi.memory_estimate import needed_bytes
from gpupack_workloads.matmul_multi.messages import Messages
from gpupack_workloads.matmul_multi.operands import B_T, A, Operands
from gpupack_workloads.matmul_multi.options import MatmulMultiOptions
from gpupack_workloads.matmul_multi.rows import Rows
from gpupack_workloads.matmul_multi.split_k import SplitK
from gpupack_workloads.matmul_multi.split_k_all_reduce import SplitKAllReduce
from gpupack_workloads.matmul_multi.summary import summarise
from gpupack_workloads.matmul_multi.timed_turns import ALONE, Candidate, TurnCounts, time_candidates
from gpupack_workloads.reference.agreement import Agreement, closest
from gpupack_workloads.results import Result

logger = logging.getLogger(__name__)

DEFAULT_SIZE = {"cuda": 32768, "cpu": 256}
FINAL = {"cuda": TurnCounts(turns=5, calls=3), "cpu": TurnCounts(turns=1, calls=1)}
CUTS: dict[str, type[Rows | Grid | SplitK]] = {
    layout.name: layout for layout in (Rows, Grid, SplitK, SplitKAllReduce)
}


def measure(options: MatmulMultiOptions, backend: str) -> Result:
    """Return how much faster the gang is than one GPU."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        operands = operands_of(options, rank)
        ways = exchanges(operands, rank)
        kinds = [CUTS[name] for name in options.layouts]
        needed = needed_bytes(kinds, operands, exchanges=len(ways))
        require_memory_on_all_ranks(needed, rank.device, doing=f"size {operands.size}")
        with memory_errors(f"a product of size {operands.size}"):
            layouts = [
                (kind(operands, way, rank.index), way.name) for way in ways for kind in kinds
            ]
            agreements = [checked(layout, operands, options) for layout, _ in layouts]
            single, block = alone(operands, options.widths)
            heat, final = time_candidates(
                [*single, *together(layouts, options)],
                device=rank.device.torch,
                final=FINAL[rank.device.torch.type],
            )
            blocks = [(ALONE, block), *((layout.name, layout.result()) for layout, _ in layouts)]
            agreements += [check_timed(name, block, operands) for name, block in blocks]
        agreement = closest(agreements)
        return summarise(heat, final, agreement, operands=operands, rank=rank)


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


def exchanges(operands: Operands, rank: Rank) -> list[Exchange]:
    """Return messages, and copies between the GPUs of one host."""
    found: list[Exchange] = [Messages(operands.device, operands.dtype)]
    world = dist.group.WORLD
    if can_access_peers(rank) and world is not None:
        from gpupack_workloads.matmul_multi.copy_engine import (  # noqa: PLC0415  GPUs only
            CopyEngine,
        )

        found.append(CopyEngine(world, operands.device, operands.dtype))
    return found


def cuts_of(options: MatmulMultiOptions) -> list[Cuts]:
    """Return every way to cut the work."""
    return [Cuts(chunks, width) for chunks in options.chunks for width in options.widths]


def checked(layout: Layout, operands: Operands, options: MatmulMultiOptions) -> Agreement:
    """Check a layout with all its cuts; return the element closest to its bound."""
    found = []
    for cuts in cuts_of(options):
        layout.result().values.fill_(float("nan"))
        layout.multiply(cuts)
        doing = f"{layout.name} in {cuts.chunks} piece(s), {cuts.width} columns at a time"
        with all_or_none():
            found.append(check(layout.result(), operands, doing=doing))
    agreement = closest(found)
    logger.info("%s: error %.2e of %.2e", layout.name, agreement.error, agreement.bound)
    return agreement


def check_timed(name: str, block: Block, operands: Operands) -> Agreement:
    """Check what the last turn left."""
    with all_or_none():
        return check(block, operands, doing=f"{name}, as it was timed")


def alone(operands: Operands, widths: Sequence[int]) -> tuple[list[Candidate], Block]:
    """Return the ways of one GPU, which has all of A and B, and where they leave C."""
    every = range(operands.ranks)
    a_mk = operands.block(A, every, every)
    b_nk = operands.block(B_T, every, every)
    c_mn = torch.empty_like(a_mk)
    candidates = [
        Candidate(ALONE, "none", Cuts(1, width), partial(multiply, a_mk, b_nk, c_mn, width=width))
        for width in widths
    ]
    return candidates, Block(every, every, c_mn, roundings=1)


def together(layouts: Sequence[tuple[Layout, str]], options: MatmulMultiOptions) -> list[Candidate]:
    """Return the ways of the gang."""
    return [
        Candidate(layout.name, exchange, cuts, partial(layout.multiply, cuts))
        for layout, exchange in layouts
        for cuts in cuts_of(options)
    ]
