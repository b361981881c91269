# SPDX-License-Identifier: Apache-2.0
"""Measures where the time of a bfloat16 product goes, ours against cuBLAS, on a Hopper GPU.

    export PYTHONPATH=workloads/kernels:workloads
    python3 benchmarks/gemm_profile.py
    ncu --profile-from-start off --clock-control none --cache-control none --set full \
        python3 benchmarks/gemm_profile.py --once

The first prints a line of JSON per finding: `launch`, the host's microseconds for a call while the
GPU is busy; `rested` and `sustained`, the GPU's microseconds for a product after a rest and without
one; `full_waves`, of a product whose tiles keep all multiprocessors busy to the end; `zeros`, of
operands that draw little power. The second computes each product once, for Nsight Compute.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from gpupack_kernels.operators.gemm.launch import multiply
from gpupack_workloads.timing import medians_in_turns, seconds_per_call

SIZES = (4096, 8192)
# 33 x 16 tiles of 128 x 256 are 4 for each of 132 multiprocessors.
FULL_WAVES = (4224, 4096, 4096)
TURN_OPERATIONS = 6e12
TURNS = 11
SEED = 0
REST_SECONDS = 0.03
LAUNCHES = 40
BUSY_CYCLES = 40_000_000

Works = dict[str, Callable[[], object]]


def works(m: int, n: int, k: int, *, zeros: bool = False) -> Works:
    """Return the product of the same operands by each library; one shape has the same operands."""
    chance = torch.Generator("cuda").manual_seed(SEED)
    shapes = ((m, k), (k, n))
    a, b = (torch.randn(shape, generator=chance, device="cuda").bfloat16() for shape in shapes)
    if zeros:
        a, b = torch.zeros_like(a), torch.zeros_like(b)
    return {"ours": partial(multiply, a, b), "cublas": partial(torch.matmul, a, b)}


def launch_us(work: Callable[[], object]) -> float:
    """Return the host's microseconds to launch a product on a busy GPU."""
    work()
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY_CYCLES)  # noqa: SLF001  nothing public keeps a GPU busy for so long
    since = time.perf_counter()
    for _ in range(LAUNCHES):
        work()
    seconds = time.perf_counter() - since
    torch.cuda.synchronize()
    return seconds / LAUNCHES * 1e6


def product_us(m: int, n: int, k: int, *, rest: float, zeros: bool = False) -> dict[str, float]:
    """Return the GPU's microseconds for a product by each library, and the ratio."""
    repeats = max(1, round(TURN_OPERATIONS / (2 * m * n * k)))

    def turn(work: Callable[[], object]) -> float:
        time.sleep(rest)
        return seconds_per_call(work, device=torch.device("cuda"), repeats=repeats, warm_up=3)

    turns = {name: partial(turn, work) for name, work in works(m, n, k, zeros=zeros).items()}
    found = medians_in_turns(turns, rounds=TURNS)
    return {
        **{name: round(seconds * 1e6, 2) for name, seconds in found.items()},
        "ratio": round(found["cublas"] / found["ours"], 4),
    }


def report(finding: str, **figures: object) -> None:
    """Print a finding."""
    print(json.dumps({"finding": finding, **figures}), flush=True)


def measure() -> None:
    """Print every finding."""
    square = works(4096, 4096, 4096)
    for name, work in square.items():
        report("launch", by=name, us=round(statistics.median(launch_us(work) for _ in range(5)), 1))
    for size in SIZES:
        shape = size, size, size
        report("rested", shape=shape, **product_us(*shape, rest=REST_SECONDS))
        report("sustained", shape=shape, **product_us(*shape, rest=0))
        report("zeros", shape=shape, **product_us(*shape, rest=0, zeros=True))
    report("full_waves", shape=FULL_WAVES, **product_us(*FULL_WAVES, rest=REST_SECONDS))


def once() -> None:
    """Compute each product once, in the profiler's range."""
    both = [work for size in SIZES for work in works(size, size, size).values()]
    for work in both:
        work()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for work in both:
        work()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def main() -> None:
    """Measure, or compute each product once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="for Nsight Compute")
    if parser.parse_args().once:
        once()
    else:
        measure()


if __name__ == "__main__":
    main()
