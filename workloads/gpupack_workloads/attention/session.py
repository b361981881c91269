# SPDX-License-Identifier: Apache-2.0
"""Checks attention in 64 bits, times it against torch's, and reports.

Before anything is timed two heads are compared element by element; afterwards all of them, as the
last turns left them, by a projection.
"""

import itertools
import logging
from collections.abc import Mapping

import torch

from gpupack_kernels.loading import load
from gpupack_workloads.attention.checks import (
    Attention,
    Inputs,
    Verdict,
    check,
    check_timed,
    random_inputs,
)
from gpupack_workloads.attention.options import DENSE, AttentionOptions
from gpupack_workloads.attention.plan import Plan, Timed, flop_of, plan_for
from gpupack_workloads.attention.rivals import backward_of, forward_of, rivals_for
from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.memory import require_memory
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.timing import LatestResult, seconds_in_turns

logger = logging.getLogger(__name__)

Seconds = dict[str, float]
MASKS = {"full": False, "causal": True}
OURS = "ours"


def run(options: AttentionOptions) -> Result:
    """Check and time attention, full and causal.

    Raises:
        OutOfMemory: the problem does not fit.
        WrongResult: something is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    plan = plan_for(device, options)
    check_memory(device, plan)
    attention: Attention = load("attention.ops", "attention")
    verdicts: dict[str, Verdict] = {}
    seconds: dict[str, Seconds] = {}
    with memory_errors(f"attention of length {plan.length} with {plan.heads} heads"):
        check_edges(attention, device, plan, seed=options.seed)
        inputs = timed_inputs(device, plan, seed=options.seed)
        for mask, causal in MASKS.items():
            first = check(attention, inputs, causal=causal)
            logger.info("%s: verified", mask)
            rivals = rivals_for(inputs, causal=causal)
            took, left = times({OURS: attention} | rivals, inputs, device, plan, mask=mask)
            seconds |= took
            last = check_timed(inputs, left, causal=causal, seed=options.seed)
            logger.info("%s: verified as it was timed", mask)
            verdicts[mask] = first.merge(last)
    return summarise(device, plan, verdicts=verdicts, seconds=seconds)


def check_memory(device: Device, plan: Plan) -> None:
    """Refuse before any work what does not fit."""
    require_memory(
        device,
        doing=f"attention of length {plan.length} with {plan.heads} heads",
        on_device=plan.needed_bytes + (plan.plain_bytes if device.simulated else 0),
        smaller="--size, --batch or --heads",
    )


def check_edges(attention: Attention, device: Device, plan: Plan, *, seed: int) -> None:
    """Check small problems whose lengths are no multiple of any tile, and shared heads."""
    for heads, kv_heads, rows, keys in plan.ragged:
        inputs = random_inputs(
            (2, heads, rows, plan.dimension),
            (2, kv_heads, keys, plan.dimension),
            device=device.torch,
            dtype=plan.dtype,
            seed=seed,
        )
        for causal in (False, True)[: 2 if rows == keys else 1]:
            check(attention, inputs, causal=causal)


def timed_inputs(device: Device, plan: Plan, *, seed: int) -> Inputs:
    """Return the problem that is timed."""
    return random_inputs(
        (plan.batch, plan.heads, plan.length, plan.dimension),
        (plan.batch, plan.kv_heads, plan.length, plan.dimension),
        device=device.torch,
        dtype=plan.dtype,
        seed=seed,
    )


def times(
    rivals: Mapping[str, Attention], inputs: Inputs, device: Device, plan: Timed, *, mask: str
) -> tuple[dict[str, Seconds], tuple[torch.Tensor, ...]]:
    """Return the seconds of each implementation, of both passes, and what our last turns left."""
    causal = MASKS[mask]
    found: dict[str, Seconds] = {}
    left: tuple[torch.Tensor, ...] = ()
    for name, work_of in (("forward", forward_of), ("backward", backward_of)):
        # All results are kept, so that no rival's result gets the memory of ours.
        works = {
            rival: LatestResult(work_of(rivals[rival], inputs, causal=causal)) for rival in rivals
        }
        works[OURS].spoil()
        found[f"{mask}_{name}"] = seconds_in_turns(
            works,
            device=device.torch,
            repeats=plan.repeats,
            rounds=plan.rounds,
            warm_up=plan.warm_up,
        )
        logger.info("%s %s: %s", mask, name, found[f"{mask}_{name}"])
        left += works[OURS].result
    return found, left


def summarise(
    device: Device,
    plan: Timed,
    *,
    verdicts: dict[str, Verdict],
    seconds: dict[str, Seconds],
    layout: str = DENSE,
) -> Result:
    """Make the result out of what was found."""
    metrics: dict[str, Scalar] = {}
    rows: list[dict[str, Scalar]] = []
    for mask, what in itertools.product(MASKS, ("forward", "backward")):
        flop = flop_of(plan, causal=MASKS[mask], backward=what == "backward")
        row = row_of(seconds[f"{mask}_{what}"], flop)
        prefix = what if mask == "full" else f"{mask}_{what}"
        metrics |= {f"{prefix}_{name}": value for name, value in row.items()}
        rows.append({"mask": mask, "pass": what, **row})
    for mask, verdict in verdicts.items():
        for what, agreement in vars(verdict).items():
            metrics[f"{mask}_{what}_error"] = agreement.error
            metrics[f"{mask}_{what}_error_bound"] = agreement.bound
    shape: dict[str, Scalar] = {
        "layout": layout,
        **plan.metrics,
        "heads": plan.heads,
        "kv_heads": plan.kv_heads,
        "dimension": plan.dimension,
        "dtype": str(plan.dtype).removeprefix("torch."),
    }
    figure = f"{metrics['forward_tflops']:.4g} / {metrics['backward_tflops']:.4g} TFLOP/s"
    return Result(
        workload="attention",
        headline=headline(figure, simulated=device.simulated),
        verified=True,
        simulated=device.simulated,
        metrics=metrics | shape | describe(device),
        rows=rows,
    )


def row_of(seconds: Seconds, flop: float) -> dict[str, Scalar]:
    """Return our rate, and its ratio to each rival's."""
    ours = seconds[OURS]
    row: dict[str, Scalar] = {"tflops": significant(flop / ours / 1e12)}
    for name, rival in seconds.items():
        if name != OURS:
            row[f"{name}_ratio"] = significant(rival / ours)
    return row | {"seconds": ours}


def significant(value: float) -> float:
    """Round to four digits."""
    return float(f"{value:.4g}")
