# SPDX-License-Identifier: Apache-2.0
"""Checks and times each kernel against its rivals, and makes the result.

Rivals are plain torch, the same compiled (on a GPU), and Liger-Kernel's where that is installed (on
a GPU). All take turns on the same data. Peaks of memory are of one forward and backward pass, above
what was there before, operands and gradients of outputs among it.
"""

import contextlib
import importlib
import importlib.metadata
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._functorch import config as functorch_config

from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.llm_kernels import KERNELS, LlmOptions, Sizes, sizes_for
from gpupack_workloads.llm_kernels.cases import CASES, Case, Function, Tensors, needed_bytes
from gpupack_workloads.memory import MIB, require_memory
from gpupack_workloads.reference.agreement import Agreement, closest
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.timing import LatestResult, seconds_in_turns
from gpupack_workloads.training.memory import forget_peak

logger = logging.getLogger(__name__)

REPEATS = {"cuda": 10, "cpu": 1}
ROUNDS = {"cuda": 5, "cpu": 1}
WARM_UP = {"cuda": 3, "cpu": 0}
# A short kernel may take less time than autograd and torch.compile need to launch it.
HEAD_START_MS = 4.0
SMALLER = "--size, --vocabulary, --hidden or --intermediate"


@dataclass(frozen=True)
class Rival:
    """An implementation of a case, with its own operands and gradients if it overwrites them."""

    function: Function
    inputs: Tensors
    gains: Tensors


def run(options: LlmOptions) -> Result:
    """Check and time every requested kernel.

    Raises:
        OutOfMemory: operands do not fit.
        WrongResult: a value is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    sizes = sizes_for(options, simulated=device.simulated)
    names = KERNELS if options.kernel is None else (options.kernel,)
    doing = f"computing {', '.join(names)} of {sizes.tokens} tokens"
    require_memory(device, doing=doing, on_device=needed_bytes(names, sizes), smaller=SMALLER)
    rows: list[dict[str, Scalar]] = []
    with memory_errors(doing):
        for name in names:
            rows += measure(CASES[name](sizes, device.torch, options.seed), device)
            forget_peak(device.torch)
    return summarise(rows, sizes, device)


def measure(case: Case, device: Device) -> list[dict[str, Scalar]]:
    """Check and time a case in both of its ways; return their rows.

    Raises:
        WrongResult: a value is wrong, before or after it was timed.
    """
    rivals = rivals_of(case)
    # By default a compiled backward pass releases its graph's memory and runs only once.
    kept = functorch_config.patch(donated_buffer=False) if "backward" in case.ways else None
    with kept or contextlib.nullcontext():
        rows = [measure_way(case, way, rivals, device) for way in case.ways]
        peaks = {name: peak_mib(rival, device) for name, rival in rivals.items()}
    return [row | peaks_of(peaks) for row in rows]


def rivals_of(case: Case) -> dict[str, Rival]:
    """Return our implementation, which comes first, and the others on this device."""
    rivals = {
        "ours": Rival(case.ours, leaves(case), case.gains),
        "eager": Rival(case.plain, leaves(case), case.gains),
    }
    if case.device.type == "cuda":
        rivals["compiled"] = Rival(
            torch.compile(case.plain, dynamic=False), leaves(case), case.gains
        )
        if (functions := liger()) is not None:
            # It writes over operands, and over gradients that it is given.
            inputs = tuple(x.clone().requires_grad_() for x in case.inputs)
            gains = tuple(x.clone() for x in case.gains)
            rivals["liger"] = Rival(case.by_liger(functions), inputs, gains)
    return rivals


def leaves(case: Case) -> Tensors:
    """Return a case's operands as leaves of the graph that require gradients."""
    return tuple(x.detach().requires_grad_() for x in case.inputs)


def liger() -> Any:
    """Return Liger-Kernel's functions, or None where it is not installed."""
    try:
        return importlib.import_module("liger_kernel.transformers.functional")
    except ImportError as error:
        logger.info("without Liger-Kernel: %s", error)
        return None


def measure_way(
    case: Case, way: str, rivals: dict[str, Rival], device: Device
) -> dict[str, Scalar]:
    """Check what ours leaves, time all in turns, and check what the last turn of ours left."""
    # All results are kept, so that no rival's result gets the memory of ours.
    works = {name: LatestResult(work_of(way, rival)) for name, rival in rivals.items()}
    first = judged(case, way, works["ours"].result)
    works["ours"].spoil()
    seconds = seconds_in_turns(
        works,
        device=device.torch,
        repeats=REPEATS[device.torch.type],
        rounds=ROUNDS[device.torch.type],
        warm_up=WARM_UP[device.torch.type],
        head_start_ms=HEAD_START_MS,
    )
    last = judged(case, way, works["ours"].result)
    return row_of(case, way, seconds, closest([first, last]))


def work_of(way: str, rival: Rival) -> Callable[[], Tensors]:
    """Return what is timed: it leaves outputs, gradients, or for both all of them."""
    if way == "forward":
        # Detached: Liger's loss computes gradients whenever an operand could have one.
        return partial(forward, rival.function, tuple(x.detach() for x in rival.inputs))
    if way == "both":
        return partial(both, rival)
    outputs = rival.function(*rival.inputs)
    return lambda: torch.autograd.grad(outputs, rival.inputs, rival.gains, retain_graph=True)


def forward(function: Function, inputs: Tensors) -> Tensors:
    """Compute outputs."""
    with torch.no_grad():
        return function(*inputs)


def both(rival: Rival) -> Tensors:
    """Compute outputs and gradients."""
    outputs = rival.function(*rival.inputs)
    gradients = torch.autograd.grad(outputs, rival.inputs, rival.gains)
    return (*(output.detach() for output in outputs), *gradients)


def judged(case: Case, way: str, found: Tensors) -> Agreement:
    """Return the worst of a case's agreements.

    Raises:
        WrongResult: rounding does not explain it.
    """
    with torch.no_grad():
        agreements = case.check(way, found)
    wrong = [agreement for agreement in agreements if not agreement.holds]
    worst = wrong[0] if wrong else closest(agreements)
    logger.info("%s %s: error %.2e", case.name, way, worst.error)
    if wrong:
        raise WrongResult(
            f"{case.name} {way} in {case.sizes.dtype} is wrong by {worst.error:.3e} where rounding"
            f" explains {worst.bound:.3e}"
        )
    return worst


def row_of(
    case: Case, way: str, seconds: dict[str, float], agreement: Agreement
) -> dict[str, Scalar]:
    """Return a line of the result's table."""
    unit, amount = case.work(way)
    row: dict[str, Scalar] = {
        "kernel": case.name,
        "pass": way,
        "ms": round(seconds["ours"] * 1e3, 4),
        unit: round(amount / seconds["ours"], 1),
    }
    for name in list(seconds)[1:]:
        row[f"{name}_ms"] = round(seconds[name] * 1e3, 4)
        row[f"{name}_ratio"] = round(seconds[name] / seconds["ours"], 4)
    return row | {"error": agreement.error, "error_bound": agreement.bound}


def peak_mib(rival: Rival, device: Device) -> int:
    """Return what a forward and a backward pass take at most besides operands; on a CPU 0."""
    if device.simulated:
        return 0
    both(rival)
    forget_peak(device.torch)
    before = torch.cuda.memory_allocated(device.torch)
    both(rival)
    return int((torch.cuda.max_memory_allocated(device.torch) - before) // MIB)


def peaks_of(peaks: dict[str, int]) -> dict[str, Scalar]:
    """Return peaks of memory by implementation."""
    return {
        "peak_mib" if name == "ours" else f"{name}_peak_mib": peak for name, peak in peaks.items()
    }


def summarise(rows: list[dict[str, Scalar]], sizes: Sizes, device: Device) -> Result:
    """Make the result: the worst ratio of all, and a table."""
    rival = "eager" if device.simulated else "compiled"
    rivals = [name for name in ("compiled", "eager", "liger") if f"{name}_ratio" in rows[0]]
    worst = {f"{name}_ratio": min(float(row[f"{name}_ratio"]) for row in rows) for name in rivals}
    metrics: dict[str, Scalar] = dict(worst)
    for row in rows:
        name = f"{row['kernel']}_{row['pass']}"
        metrics |= {f"{name}_{rival}_ratio": row[f"{rival}_ratio"], f"{name}_ms": row["ms"]}
    for row in rows:
        for peak in ("peak_mib", f"{rival}_peak_mib"):
            metrics[f"{row['kernel']}_{peak}"] = row[peak]
    whose = "torch" if device.simulated else "torch.compile"
    figure = f"{worst[f'{rival}_ratio']:.2f} x {whose} at least"
    return Result(
        workload="llm-kernels",
        headline=headline(figure, simulated=device.simulated),
        verified=True,
        simulated=device.simulated,
        metrics=metrics | vars(sizes) | versions(rivals) | describe(device),
        rows=rows,
    )


def versions(rivals: list[str]) -> dict[str, Scalar]:
    """Return the version of Liger-Kernel where it took part."""
    if "liger" not in rivals:
        return {}
    return {"liger_version": importlib.metadata.version("liger-kernel")}
