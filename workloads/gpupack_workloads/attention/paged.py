# SPDX-License-Identifier: Apache-2.0
"""Checks attention of one token over pages in 64 bits, times it against others', and reports.

Every row and head is compared, before anything is timed and as the last turn left it. What bounds
the speed is reading keys and values, each once.
"""

import logging
from functools import partial

import torch

from gpupack_kernels.loading import load
from gpupack_workloads.attention.decoding import Pages, decoding_rivals, random_pages
from gpupack_workloads.attention.lengths import RaggedPlan, ragged_plan_for
from gpupack_workloads.attention.options import PAGED, AttentionOptions
from gpupack_workloads.attention.session import OURS, Seconds, significant
from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.memory import require_memory
from gpupack_workloads.reference.agreement import Agreement, closest
from gpupack_workloads.reference.attention import Head, compare, expected
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.timing import LatestResult, seconds_in_turns

logger = logging.getLogger(__name__)

# One call is shorter than its launch.
HEAD_START_MS = 2.0


def run(options: AttentionOptions) -> Result:
    """Check and time attention of one token of each sequence.

    Raises:
        OutOfMemory: the problem does not fit.
        WrongResult: something is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    plan = ragged_plan_for(device, options)
    doing = f"attention over pages of {plan.tokens} tokens"
    require_memory(
        device, doing=doing, on_device=needed_bytes(plan), smaller="--size, --batch or --kv-heads"
    )
    kernel = load("paged_decode_attention.ops", "paged_decode_attention")
    with memory_errors(doing):
        pages = random_pages(plan, device.torch, seed=options.seed)
        rivals = {OURS: partial(kernel, *pages.given)} | decoding_rivals(pages)
        works = {name: LatestResult(rival) for name, rival in rivals.items()}
        first = check(pages, works[OURS].result)
        logger.info("verified")
        works[OURS].spoil()
        seconds = seconds_in_turns(
            works,
            device=device.torch,
            repeats=plan.repeats,
            rounds=plan.rounds,
            warm_up=plan.warm_up,
            head_start_ms=HEAD_START_MS,
        )
        logger.info("%s", seconds)
        last = check(pages, works[OURS].result)
    return summarise(device, plan, closest([first, last]), seconds)


def needed_bytes(plan: RaggedPlan) -> int:
    """Return about what pages, copies of them in order and the check need."""
    copies = len(plan.lengths) * max(plan.lengths)
    width = plan.kv_heads * plan.dimension
    return 2 * width * (plan.tokens + 2 * copies) * 4 + 64 * max(plan.lengths) * width


def read_bytes(plan: RaggedPlan) -> int:
    """Return the bytes that must be read and written: keys and values, Q and O."""
    keys = 2 * plan.tokens * plan.kv_heads
    queries = 2 * len(plan.lengths) * plan.heads
    return (keys + queries) * plan.dimension * int(plan.dtype.itemsize)


def check(pages: Pages, o: torch.Tensor) -> Agreement:
    """Return the element of any row and head that comes closest to its bound.

    Raises:
        WrongResult: one differs by more than rounding explains.
    """
    found = []
    group = pages.q.shape[1] // pages.k.shape[2]
    for row in range(len(pages.q)):
        keys, values = (x.double() for x in pages.row(row))
        for number in range(keys.shape[1]):
            heads = slice(number * group, (number + 1) * group)
            q = pages.q[row, heads].double()
            head = Head(
                q=q,
                k=keys[:, number],
                v=values[:, number],
                do=torch.zeros_like(q),
                causal=False,
                scale=q.shape[1] ** -0.5,
                dtype=str(o.dtype).removeprefix("torch."),
            )
            wanted = expected(head)
            found.append(compare(o[row, heads], head, wanted.o, wanted.o_bound))
    worst = closest(found)
    if not worst.holds:
        raise WrongResult(
            f"attention over pages, q {tuple(pages.q.shape)}, {o.dtype}: wrong by"
            f" {worst.error:.3e} where rounding explains {worst.bound:.3e}"
        )
    return worst


def summarise(device: Device, plan: RaggedPlan, worst: Agreement, seconds: Seconds) -> Result:
    """Make the result out of what was found."""
    rate = significant(read_bytes(plan) / seconds[OURS] / 1e9)
    row: dict[str, Scalar] = {"gb_per_s": rate, "seconds": seconds[OURS]}
    for name, rival in seconds.items():
        if name != OURS:
            row[f"{name}_ratio"] = significant(rival / seconds[OURS])
    metrics: dict[str, Scalar] = {
        **row,
        "error": worst.error,
        "error_bound": worst.bound,
        "layout": PAGED,
        **plan.metrics,
        "heads": plan.heads,
        "kv_heads": plan.kv_heads,
        "dimension": plan.dimension,
        "page_tokens": plan.page_tokens,
        "dtype": str(plan.dtype).removeprefix("torch."),
    }
    return Result(
        workload="attention",
        headline=headline(f"{rate:.4g} GB/s of keys and values", simulated=device.simulated),
        verified=True,
        simulated=device.simulated,
        metrics=metrics | describe(device),
        rows=[{"layout": PAGED, **row}],
    )
