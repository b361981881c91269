# SPDX-License-Identifier: Apache-2.0
"""Matrix product: torch's and our Triton kernel's, both checked against NumPy and timed.

What is checked is what was timed: rows of the very result, spread over the whole matrix, are
computed again by NumPy in 64 bits. Every tile of 64 rows has at least one of them, so a tile that
was skipped or computed twice is seen. On top, small products with ragged shapes try the edges.
"""

import importlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.kernels.gemm.reference import Agreement, Matrix, compare
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.settings import Options
from gpupack_workloads.timing import WARM_UP, seconds_per_call

logger = logging.getLogger(__name__)

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

ROW_STEP = 64
RAGGED = ((1, 1, 1), (65, 33, 17), (256, 256, 256), (130, 70, 257))


@dataclass(frozen=True)
class Plan:
    """What to compute on a kind of device."""

    size: int
    dtype: torch.dtype
    repeats: int
    triton_repeats: int


def plan_for(device: Device, size: int | None) -> Plan:
    """Return sizes that take a second or so on the device."""
    if device.simulated:
        return Plan(size=size or 512, dtype=torch.float32, repeats=20, triton_repeats=1)
    return Plan(size=size or 8192, dtype=torch.bfloat16, repeats=50, triton_repeats=50)


def run(options: Options) -> Result:
    """Check and time both products.

    Raises:
        WrongResult: a product is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    plan = plan_for(device, options.size)
    products = {"torch": torch.matmul, "triton": load_triton_gemm(device)}
    with memory_errors(f"a product of {plan.size} x {plan.size} matrices"):
        for name, product in products.items():
            check_edges(name, product, device=device, plan=plan, seed=options.seed)
        a, b = random_matrices((plan.size,) * 3, device=device, plan=plan, seed=options.seed)
        agreements = {name: check(name, product, a, b) for name, product in products.items()}
        seconds = {
            "torch": seconds_per_call(
                partial(torch.matmul, a, b), device=device.torch, repeats=plan.repeats
            ),
            "triton": seconds_per_call(
                partial(products["triton"], a, b),
                device=device.torch,
                repeats=plan.triton_repeats,
                warm_up=0 if device.simulated else WARM_UP,
            ),
        }
    return summarise(device, plan, agreements=agreements, seconds=seconds)


def load_triton_gemm(device: Device) -> Product:
    """Import our kernel, interpreted where there is no GPU: Triton decides that at import."""
    if device.simulated:
        os.environ["TRITON_INTERPRET"] = "1"
    launch = importlib.import_module("gpupack_workloads.kernels.gemm.launch")
    product: Product = launch.gemm
    return product


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


def check(name: str, product: Product, a: torch.Tensor, b: torch.Tensor) -> Agreement:
    """Compute a product and compare rows of it with NumPy's."""
    c = product(a, b)
    # An odd step visits every position within a tile.
    rows = range(0, a.shape[0], ROW_STEP - 1)
    agreement = compare(
        a=_numpy(a[rows]), b=_numpy(b), c=_numpy(c[rows]), dtype=str(a.dtype).removeprefix("torch.")
    )
    logger.info("%s %s: error %.2e", name, tuple(c.shape), agreement.error)
    if not agreement.holds:
        raise WrongResult(
            f"{name}: the product of {tuple(a.shape)} and {tuple(b.shape)} is wrong by"
            f" {agreement.error:.3e} where rounding explains {agreement.bound:.3e}"
        )
    return agreement


def summarise(
    device: Device, plan: Plan, *, agreements: dict[str, Agreement], seconds: dict[str, float]
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
    return Result(
        workload="matmul",
        headline=headline(f"{tflops['torch']:.2f} TFLOP/s", simulated=device.simulated),
        verified=True,
        simulated=device.simulated,
        metrics=metrics | describe(device),
    )


def _numpy(matrix: torch.Tensor) -> Matrix:
    values: Matrix = matrix.double().cpu().numpy()
    return np.ascontiguousarray(values)
