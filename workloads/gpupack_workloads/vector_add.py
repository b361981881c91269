# SPDX-License-Identifier: Apache-2.0
"""Vector addition: the simplest kernel, compared with torch's addition and a plain copy.

All three move bytes and hardly compute, so their bandwidths should be one and the same; bytes are
counted as read once and written once: 12 per 32-bit sum, 8 per copied element.
"""

import logging
from dataclasses import dataclass
from functools import partial

import torch

from gpupack_kernels.loading import load
from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.memory import require_memory
from gpupack_workloads.reference.agreement import Agreement
from gpupack_workloads.reference.vector_add import compare
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.settings import Options
from gpupack_workloads.timing import seconds_in_turns

logger = logging.getLogger(__name__)

MOVED_BYTES = {"triton": 12, "torch": 12, "copy": 8}
# Both summands, their copy and a sum, while it is timed.
VECTOR_BYTES = 4 * 4
# Checked in pieces of this many elements: the reference in 64 bits need not hold all at once.
PIECE = 1 << 24


@dataclass(frozen=True)
class Plan:
    """Sizes and repetitions for a kind of device."""

    size: int
    repeats: int
    rounds: int
    warm_up: int


def plan_for(device: Device, size: int | None) -> Plan:
    """Return sizes far beyond any cache that take a second or so on the device."""
    if device.simulated:
        return Plan(size=size or 1 << 18, repeats=1, rounds=1, warm_up=0)
    return Plan(size=size or 1 << 28, repeats=10, rounds=7, warm_up=3)


def run(options: Options) -> Result:
    """Check the sum of two vectors and time it.

    Raises:
        OutOfMemory: the vectors do not fit.
        WrongResult: an element is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    plan = plan_for(device, options.size)
    doing = f"an addition of {plan.size} elements"
    require_memory(device, doing=doing, on_device=VECTOR_BYTES * plan.size)
    vector_add = load("vector_add.ops", "vector_add")
    with memory_errors(doing):
        x, y = (random_vector(plan.size, device=device, seed=options.seed + i) for i in range(2))
        agreement = check(x, y, vector_add(x, y))
        copied = torch.empty_like(x)
        works = {
            "triton": partial(vector_add, x, y),
            "torch": partial(torch.add, x, y),
            "copy": partial(copied.copy_, x),
        }
        seconds = seconds_in_turns(
            works,
            device=device.torch,
            repeats=plan.repeats,
            rounds=plan.rounds,
            warm_up=plan.warm_up,
        )
    return summarise(device, plan, agreement=agreement, seconds=seconds)


def random_vector(size: int, *, device: Device, seed: int) -> torch.Tensor:
    """Return normal numbers; one seed gives one vector per device."""
    chance = torch.Generator(device.torch).manual_seed(seed)
    return torch.randn(size, generator=chance, device=device.torch)


def check(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Agreement:
    """Compare every element with NumPy's sum."""
    pieces = zip(x.split(PIECE), y.split(PIECE), z.split(PIECE), strict=True)
    found = [_check_piece(*piece) for piece in pieces]
    worst = max(found, key=lambda agreement: agreement.error / agreement.bound)
    if not worst.holds:
        raise WrongResult(
            f"a sum is wrong by {worst.error:.3e} where rounding explains {worst.bound:.3e}"
        )
    return worst


def _check_piece(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Agreement:
    x64, y64, z64 = (vector.double().cpu().numpy() for vector in (x, y, z))
    return compare(x=x64, y=y64, z=z64, dtype=str(z.dtype).removeprefix("torch."))


def summarise(
    device: Device, plan: Plan, *, agreement: Agreement, seconds: dict[str, float]
) -> Result:
    """Make the result out of what was found."""
    rates = {name: MOVED_BYTES[name] * plan.size / time / 1e9 for name, time in seconds.items()}
    metrics: dict[str, Scalar] = {
        "gb_per_s": round(rates["triton"], 3),
        "torch_ratio": round(rates["triton"] / rates["torch"], 4),
        "copy_ratio": round(rates["triton"] / rates["copy"], 4),
        "torch_gb_per_s": round(rates["torch"], 3),
        "copy_gb_per_s": round(rates["copy"], 3),
        "seconds": seconds["triton"],
        "error": agreement.error,
        "error_bound": agreement.bound,
        "size": plan.size,
        "dtype": "float32",
    }
    return Result(
        workload="vector-add",
        headline=headline(f"{rates['triton']:.1f} GB/s", simulated=device.simulated),
        verified=True,
        simulated=device.simulated,
        metrics=metrics | describe(device),
    )
