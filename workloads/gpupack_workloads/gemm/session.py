# SPDX-License-Identifier: Apache-2.0
"""Checks and times every product, ours and cuBLAS in turns, and makes the result.

Checked are the first product, which compiles the kernel, and the last that was timed, which was
launched as compiled, right behind another.

In turns, because a large product draws all the power that the GPU may: the second one meets
the clocks that the first one left.
"""

from dataclasses import dataclass
from functools import partial

from gpupack_kernels.loading import load
from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.gemm.options import GemmOptions
from gpupack_workloads.gemm.problems import GemmProblem, operands, problems, rival
from gpupack_workloads.memory import require_memory
from gpupack_workloads.reference.agreement import Agreement, closest
from gpupack_workloads.reference.gemm import Product, check_result, needs
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.timing import LatestResult, seconds_in_turns

ROUNDS = {"cuda": 9, "cpu": 1}
# Work of one turn: long enough that launches and events do not count, shorter than the heating.
TURN_OPERATIONS = 6e12
MAX_REPEATS = 50
# Times the bytes of an element: what a GPU computes in about the time of a launch, which differs
# from host to host. Such products are launched while the GPU waits, so that the figure is its own.
SHORT_OPERATIONS = 2e11
HEAD_START_MS = 20


@dataclass(frozen=True)
class Measured:
    """Findings of one product.

    Attributes:
        problem: the product.
        agreement: agreement of ours with the reference.
        tflops: TFLOP/s of ours.
        rival_tflops: TFLOP/s of cuBLAS; None where it has no such product.
    """

    problem: GemmProblem
    agreement: Agreement
    tflops: float
    rival_tflops: float | None

    @property
    def ratio(self) -> float | None:
        """Return ours over cuBLAS."""
        return round(self.tflops / self.rival_tflops, 4) if self.rival_tflops else None

    def row(self) -> dict[str, Scalar]:
        """Return the problem as a row of the result's table."""
        m, n, k = self.problem.shape
        row: dict[str, Scalar] = {
            "dtype": str(self.problem.dtype).removeprefix("torch."),
            "m": m,
            "n": n,
            "k": k,
            "tflops": round(self.tflops, 4),
            "error": self.agreement.error,
            "error_bound": self.agreement.bound,
        }
        if self.ratio is not None and self.rival_tflops is not None:
            row |= {"cublas_tflops": round(self.rival_tflops, 4), "cublas_ratio": self.ratio}
        return row


def run(options: GemmOptions) -> Result:
    """Check and time every problem.

    Raises:
        OutOfMemory: the matrices do not fit.
        WrongResult: a product is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    wanted = problems(options, simulated=device.simulated)
    for problem in wanted:
        check_memory(problem, device)
    product = load("gemm.ops", "gemm")
    with memory_errors(f"a product of {max(problem.shape for problem in wanted)}"):
        found = [
            measure(problem, product, device=device, seed=options.seed + number)
            for number, problem in enumerate(wanted)
        ]
    return summarise(found, device)


def check_memory(problem: GemmProblem, device: Device) -> None:
    """Refuse before any work what does not fit."""
    element = problem.dtype.itemsize
    tensors, arrays = needs(
        problem.shape,
        element_bytes=element,
        result_bytes=max(2, element),
        simulated=device.simulated,
    )
    doing = f"a product of {problem.shape} in {str(problem.dtype).removeprefix('torch.')}"
    require_memory(device, doing=doing, on_device=tensors, on_host=arrays)


def measure(problem: GemmProblem, product: Product, *, device: Device, seed: int) -> Measured:
    """Check one product, time it against its rival, and check what the last turn left."""
    a, b = operands(problem, device=device, seed=seed)
    ours = LatestResult(partial(product, a, b))
    first = check_result(f"gemm {problem.name}", ours.result, a, b)
    ours.spoil()
    works = {"ours": ours}
    other = rival(problem, a, b)
    if other is not None:
        # Kept as well, so that its results do not get the memory of ours.
        works["rival"] = LatestResult(other)
    seconds = seconds_in_turns(
        works,
        device=device.torch,
        repeats=1 if device.simulated else repeats(problem),
        rounds=ROUNDS[device.torch.type],
        warm_up=0 if device.simulated else 3,
        head_start_ms=head_start_ms(problem),
    )
    tflops = {name: problem.operations / time / 1e12 for name, time in seconds.items()}
    last = check_result(f"gemm {problem.name}, as it was timed", ours.result, a, b)
    return Measured(problem, closest([first, last]), tflops["ours"], tflops.get("rival"))


def repeats(problem: GemmProblem) -> int:
    """Return how often a turn repeats a product."""
    return max(1, min(MAX_REPEATS, round(TURN_OPERATIONS / problem.operations)))


def head_start_ms(problem: GemmProblem) -> float:
    """Return how long the GPU waits while a turn is launched; longer products keep it busy."""
    short = problem.operations * problem.dtype.itemsize < SHORT_OPERATIONS
    return HEAD_START_MS if short else 0


def summarise(found: list[Measured], device: Device) -> Result:
    """Make the result: ratios first, then figures by problem, and a table."""
    metrics: dict[str, Scalar] = {}
    for measured in found:
        if measured.ratio is not None:
            metrics[f"{measured.problem.name}_cublas_ratio"] = measured.ratio
    for measured in found:
        metrics[f"{measured.problem.name}_tflops"] = round(measured.tflops, 4)
        if measured.rival_tflops is not None:
            metrics[f"{measured.problem.name}_cublas_tflops"] = round(measured.rival_tflops, 4)
    worst = closest([measured.agreement for measured in found])
    metrics |= {"error": worst.error, "error_bound": worst.bound}
    best = max(
        measured.tflops for measured in found if measured.problem.dtype == found[0].problem.dtype
    )
    return Result(
        workload="gemm",
        headline=headline(f"{best:.2f} TFLOP/s", simulated=device.simulated),
        verified=True,
        simulated=device.simulated,
        metrics=metrics | describe(device),
        rows=[measured.row() for measured in found],
    )
