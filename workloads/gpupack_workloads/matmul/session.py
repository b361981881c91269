# SPDX-License-Identifier: Apache-2.0
"""Torch's product and our Triton kernel's at one size, and the result of the whole workload.

Before anything is timed each product is computed once, and NumPy computes rows of it again in 64
bits; the timed calls repeat it with the same operands, and the last of them is checked as well.
Small products with ragged shapes try the edges.
"""

import os
from dataclasses import dataclass
from functools import partial

import torch

from gpupack_kernels.loading import load
from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.matmul.compare_numpy import (
    HOST_MATRICES,
    Comparison,
    compare_sizes,
    sizes,
)
from gpupack_workloads.matmul.threads import cpu_threads
from gpupack_workloads.memory import MIB, require_memory
from gpupack_workloads.reference.agreement import Agreement, closest
from gpupack_workloads.reference.gemm import Product, check, check_result, needs
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.settings import Options
from gpupack_workloads.timing import LatestResult, seconds_in_turns, seconds_per_call

RAGGED = ((1, 1, 1), (65, 33, 17), (256, 256, 256), (130, 70, 257))


@dataclass(frozen=True)
class Plan:
    """Sizes for a kind of device."""

    size: int
    dtype: torch.dtype
    repeats: int
    rounds: int


def plan_for(device: Device, size: int | None) -> Plan:
    """Return sizes that take a second or so on the device."""
    if device.simulated:
        return Plan(size=size or 512, dtype=torch.float32, repeats=20, rounds=1)
    return Plan(size=size or 8192, dtype=torch.bfloat16, repeats=10, rounds=7)


def run(options: Options) -> Result:
    """Check and time all products.

    Raises:
        OutOfMemory: the matrices do not fit.
        WrongResult: a product is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    plan = plan_for(device, options.size)
    check_memory(device, plan)
    triton = load("gemm.ops", "gemm")
    products: dict[str, Product] = {"torch": torch.matmul, "triton": triton}
    with memory_errors(f"a product of {plan.size} x {plan.size} matrices"):
        for name, product in products.items():
            check_edges(name, product, device=device, plan=plan, seed=options.seed)
        a, b = random_matrices((plan.size,) * 3, device=device, plan=plan, seed=options.seed)
        works = {name: LatestResult(partial(product, a, b)) for name, product in products.items()}
        first = check_works(works, a, b)
        seconds = time_products(works, device=device, plan=plan)
        last = check_works(works, a, b, how=", as it was timed")
        agreements = {name: closest([first[name], last[name]]) for name in works}
        wanted = sizes(plan.size, simulated=device.simulated)
        numpy = compare_sizes(wanted, device=device, options=options)
    return summarise(device, plan, agreements=agreements, seconds=seconds, numpy=numpy)


def check_memory(device: Device, plan: Plan) -> None:
    """Refuse before any work what does not fit."""
    element = plan.dtype.itemsize
    shape = (plan.size,) * 3
    tensors, arrays = needs(
        shape, element_bytes=element, result_bytes=element, simulated=device.simulated
    )
    if device.simulated:
        # NumPy's comparison at the chosen size, with both sides' matrices on the host.
        arrays = max(arrays, HOST_MATRICES * plan.size**2 * element)
    doing = f"a product of {plan.size} x {plan.size} matrices"
    require_memory(device, doing=doing, on_device=tensors, on_host=arrays)


def check_works(
    works: dict[str, LatestResult], a: torch.Tensor, b: torch.Tensor, *, how: str = ""
) -> dict[str, Agreement]:
    """Check what each product has left, and spoil it."""
    found = {}
    for name, work in works.items():
        found[name] = check_result(f"{name}{how}", work.result, a, b)
        work.spoil()
    return found


def time_products(
    works: dict[str, LatestResult], *, device: Device, plan: Plan
) -> dict[str, float]:
    """Return each product's seconds: on a GPU in turns, since both draw all the power it may."""
    if not device.simulated:
        return seconds_in_turns(
            works, device=device.torch, repeats=plan.repeats, rounds=plan.rounds
        )
    # The interpreter takes seconds where torch takes milliseconds: once, and not to warm up.
    return {
        "torch": seconds_per_call(works["torch"], device=device.torch, repeats=plan.repeats),
        "triton": seconds_per_call(works["triton"], device=device.torch, repeats=1, warm_up=0),
    }


def random_matrices(
    shape: tuple[int, int, int], *, device: Device, plan: Plan, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A[M, K] and B[K, N] of normal numbers; one seed gives one pair per device."""
    m, n, k = shape
    chance = torch.Generator(device.torch).manual_seed(seed)
    return (
        torch.randn((m, k), generator=chance, device=device.torch, dtype=plan.dtype),
        torch.randn((k, n), generator=chance, device=device.torch, dtype=plan.dtype),
    )


def check_edges(name: str, product: Product, *, device: Device, plan: Plan, seed: int) -> None:
    """Check shapes that are no multiple of any tile."""
    for shape in RAGGED:
        check(name, product, *random_matrices(shape, device=device, plan=plan, seed=seed))


def summarise(
    device: Device,
    plan: Plan,
    *,
    agreements: dict[str, Agreement],
    seconds: dict[str, float],
    numpy: list[Comparison],
) -> Result:
    """Make the result out of what was found."""
    tflops = {name: 2 * plan.size**3 / time / 1e12 for name, time in seconds.items()}
    metrics: dict[str, Scalar] = {
        "tflops": round(tflops["torch"], 4),
        "triton_tflops": round(tflops["triton"], 4),
        "size": plan.size,
        "dtype": str(plan.dtype).removeprefix("torch."),
    }
    for name, agreement in agreements.items():
        metrics[f"{name}_seconds"] = seconds[name]
        metrics[f"{name}_error"] = agreement.error
        metrics[f"{name}_error_bound"] = agreement.bound
    metrics |= numpy[-1].metrics()
    metrics["cpu_threads"] = cpu_threads(os.environ)
    if not device.simulated:
        metrics["peak_memory_mib"] = round(torch.cuda.max_memory_allocated(device.torch) / MIB, 1)
    return Result(
        workload="matmul",
        headline=headline(f"{tflops['torch']:.2f} TFLOP/s", simulated=device.simulated),
        verified=True,
        simulated=device.simulated,
        metrics=metrics | describe(device),
        rows=[comparison.row() for comparison in numpy],
    )
