# SPDX-License-Identifier: Apache-2.0
"""Compiles every step, checks it, times it against cuBLAS, and makes the result.

Before anything is timed, products of ragged shapes are compared in every element with NumPy's in 64
bits, and rows of the one that is timed; so are those of the last that was timed. C holds no numbers
before, and the memory around it must be untouched.

Kernels of one type take turns with cuBLAS, since large products draw all the power that the GPU
may.

Without a GPU the kernels are compiled for one that is not there, and torch multiplies in their
place.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from gpupack_workloads.cuda_compiler import (
    ABSENT,
    Compiler,
    arch_of,
    choose_compiler,
    compiler_if_any,
)
from gpupack_workloads.cuda_matmul import CudaMatmulOptions, Step, steps_of
from gpupack_workloads.cuda_matmul.kernels import Kernel, compile_matmul
from gpupack_workloads.devices import (
    Device,
    choose_device,
    describe,
    kernel_errors,
    memory_errors,
)
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.memory import require_memory
from gpupack_workloads.reference.agreement import Agreement, closest
from gpupack_workloads.reference.gemm import check_result, compare, in_64_bits, needs
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.timing import WARM_UP, LatestResult, medians_in_turns, seconds_per_call

logger = logging.getLogger(__name__)

Shape = tuple[int, int, int]
# Computes C[M, N] = A[M, K] B[K, N] into the third.
Multiply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]

# M, N and K: less than a tile; rows of A, of B, of both that start at multiples of 16 bytes, and of
# neither; several tiles with a rest.
RAGGED: tuple[Shape, ...] = (
    (1, 1, 1),
    (65, 33, 17),
    (129, 264, 40),
    (130, 71, 264),
    (200, 136, 77),
    (257, 514, 129),
)
SIZES = {"cuda": 8192, "cpu": 96}
# Elements on each side of C that must stay untouched; a multiple of 16 bytes.
MARGIN = 4096
RESULT_BYTES = 4
ROUNDS = 5
# Of a turn: long enough that launches and events do not count, short compared with the heating.
TURN_SECONDS = 0.05
MAX_REPEATS = 50
CUBLAS = "cublas"
WORKLOAD = "cuda-matmul"


@dataclass(frozen=True)
class Measured:
    """Findings of one step.

    Attributes:
        step: the kernel.
        agreement: with the reference.
        seconds: seconds of one product.
        cublas_seconds: seconds of cuBLAS in the same turns.
        operations: multiplications and additions of one product.
    """

    step: Step
    agreement: Agreement
    seconds: float
    cublas_seconds: float
    operations: int

    @property
    def tflops(self) -> float:
        """Return the speed."""
        return round(self.operations / self.seconds / 1e12, 4)

    @property
    def ratio(self) -> float:
        """Return the part of cuBLAS's speed."""
        return round(self.cublas_seconds / self.seconds, 4)

    def row(self) -> dict[str, Scalar]:
        """Return the step as a row of the result's table."""
        return {
            "step": self.step.name,
            "dtype": self.step.dtype,
            "tflops": self.tflops,
            "cublas_tflops": round(self.operations / self.cublas_seconds / 1e12, 4),
            "cublas_ratio": self.ratio,
            "seconds": self.seconds,
            "error": self.agreement.error,
            "error_bound": self.agreement.bound,
        }


def run(options: CudaMatmulOptions) -> Result:
    """Compile, check and time every step that this GPU can run.

    Raises:
        BadArgument: a source does not compile or cannot be launched, or there is no compiler.
        OutOfMemory: the matrices do not fit.
        WrongResult: a product is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    size = options.size or SIZES[device.torch.type]
    doing = f"a product of {size} x {size} matrices"
    check_memory(device, size, steps_of(options), doing=doing)
    with memory_errors(doing):
        if device.simulated:
            return simulate(device, size, options)
        return measure(device, size, options)


def measure(device: Device, size: int, options: CudaMatmulOptions) -> Result:
    """Compile, check and time every step that this GPU can run.

    Raises:
        BadArgument: as `run` does, or a kernel of the user's fails on the GPU.
        WrongResult: a product is wrong.
    """
    capability = torch.cuda.get_device_capability(device.torch)
    steps = steps_of(options)
    able = [step for step in steps if capability >= step.least]
    left_out = [unable(step, capability) for step in steps if step not in able]
    compiler = choose_compiler(options.compiler)
    kernels = {step: loaded(step, compiler, capability) for step in able}
    with kernel_errors(options.source):
        for step, kernel in kernels.items():
            check_edges(step, kernel, device=device, seed=options.seed)
        found = [
            measured
            for dtype in dict.fromkeys(step.dtype for step in able)
            for measured in in_turns(
                {step: kernel for step, kernel in kernels.items() if step.dtype == dtype},
                operands((size,) * 3, dtype, device=device, seed=options.seed),
                device=device,
            )
        ]
    facts: dict[str, Scalar] = {
        "size": size,
        "compiler": compiler.name,
        "architecture": arch_of(capability),
    }
    return summarise(device, found, left_out=left_out, facts=facts)


def check_memory(device: Device, size: int, steps: tuple[Step, ...], *, doing: str) -> None:
    """Check before any work that the memory suffices: all results of a type are kept."""
    for dtype in {step.dtype for step in steps}:
        tensors, arrays = needs(
            (size,) * 3,
            element_bytes=getattr(torch, dtype).itemsize,
            result_bytes=RESULT_BYTES,
            simulated=device.simulated,
        )
        others = sum(step.dtype == dtype for step in steps) - 1
        require_memory(
            device,
            doing=doing,
            on_device=tensors + others * RESULT_BYTES * size * size,
            on_host=arrays,
        )


def unable(step: Step, capability: tuple[int, int]) -> dict[str, Scalar]:
    """Return the row of a step that this GPU cannot run, and warn."""
    why = "{} needs compute capability {}.{}: not on this GPU, which has {}.{}".format(
        step.name, *step.least, *capability
    )
    logger.warning("%s", why)
    return {"step": step.name, "dtype": step.dtype, "left_out": why}


def loaded(step: Step, compiler: Compiler, capability: tuple[int, int]) -> Multiply:
    """Compile a step and load it onto the current device.

    Raises:
        BadArgument: it does not compile, or cannot be launched.
    """
    start = time.perf_counter()
    cubin = compile_matmul(compiler, step.path, arch_of(capability))
    logger.info("%s: compiled in %.2f s", step.name, time.perf_counter() - start)
    # Makes the context that the code is loaded into.
    torch.cuda.synchronize()
    return partial(launch, Kernel(cubin, step.path))


def launch(kernel: Kernel, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Let a kernel compute C on the current stream; all are contiguous and row-major."""
    (m, k), n = a.shape, b.shape[1]
    stream = torch.cuda.current_stream(a.device).cuda_stream
    kernel.launch((a.data_ptr(), b.data_ptr(), c.data_ptr()), (m, n, k), stream)


def stand_in(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Compute C as a kernel would, without a GPU."""
    torch.mm(a.float(), b.float(), out=c)


def cublas(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the product by cuBLAS, with sums and a result of 32 bits as ours."""
    return torch.mm(a, b) if a.dtype == torch.float32 else torch.mm(a, b, out_dtype=torch.float32)


def product(multiply: Multiply, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return C[M, N] = A[M, K] B[K, N] of 32 bits."""
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    multiply(a, b, c)
    return c


def operands(
    shape: Shape, dtype: str, *, device: Device, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A[M, K] and B[K, N] of normal numbers; one seed gives one pair per device."""
    m, n, k = shape
    chance = torch.Generator(device.torch).manual_seed(seed)
    a, b = (
        torch.randn(sides, generator=chance, device=device.torch).to(getattr(torch, dtype))
        for sides in ((m, k), (k, n))
    )
    return a, b


def check_edges(step: Step, multiply: Multiply, *, device: Device, seed: int) -> None:
    """Check every element of products whose shapes divide by no tile, and the memory around them.

    Raises:
        WrongResult: an element is wrong, or memory around C has changed.
    """
    for shape in RAGGED:
        m, n, _ = shape
        a, b = operands(shape, step.dtype, device=device, seed=seed)
        around = torch.full((2 * MARGIN + m * n,), torch.nan, device=device.torch)
        before, c, after = around.split((MARGIN, m * n, MARGIN))
        multiply(a, b, c.view(m, n))
        if not (before.isnan().all() and after.isnan().all()):
            raise WrongResult(f"{step.name}: memory around C has changed at {shape}")
        found = compare(
            a=in_64_bits(a), b=in_64_bits(b), c=in_64_bits(c.view(m, n)), dtype="float32"
        )
        if not found.holds:
            raise WrongResult(
                f"{step.name}: the product of {tuple(a.shape)} and {tuple(b.shape)} is wrong by"
                f" {found.error:.3e} where rounding explains {found.bound:.3e}"
            )


def in_turns(
    kernels: Mapping[Step, Multiply],
    matrices: tuple[torch.Tensor, torch.Tensor],
    *,
    device: Device,
) -> list[Measured]:
    """Check kernels of one type at full size, and time them in turns with cuBLAS.

    Raises:
        WrongResult: a product is wrong, the first or the last that was timed.
    """
    a, b = matrices
    works = {step: LatestResult(partial(product, kernel, a, b)) for step, kernel in kernels.items()}
    first = {step: check_result(step.name, work.result, a, b) for step, work in works.items()}
    for work in works.values():
        work.spoil()
    rival = LatestResult(partial(cublas, a, b))
    turns = {step.name: turn(work, device) for step, work in works.items()}
    seconds = medians_in_turns(turns | {CUBLAS: turn(rival, device)}, rounds=ROUNDS)
    last = {
        step: check_result(f"{step.name}, as it was timed", work.result, a, b)
        for step, work in works.items()
    }
    return [
        Measured(
            step=step,
            agreement=closest([first[step], last[step]]),
            seconds=seconds[step.name],
            cublas_seconds=seconds[CUBLAS],
            operations=2 * a.shape[0] * b.shape[1] * a.shape[1],
        )
        for step in works
    ]


def turn(work: LatestResult, device: Device) -> Callable[[], float]:
    """Return what times a product about as long as a turn is, at least once."""
    once = seconds_per_call(work, device=device.torch, repeats=1, warm_up=1)
    repeats = max(1, min(MAX_REPEATS, round(TURN_SECONDS / once)))
    return partial(
        seconds_per_call,
        work,
        device=device.torch,
        repeats=repeats,
        warm_up=min(repeats, WARM_UP),
    )


def summarise(
    device: Device,
    found: list[Measured],
    *,
    left_out: list[dict[str, Scalar]],
    facts: dict[str, Scalar],
) -> Result:
    """Make the result; the headline is the last step's."""
    metrics: dict[str, Scalar] = {}
    for measured in found:
        metrics[f"{measured.step.name}_tflops"] = measured.tflops
        metrics[f"{measured.step.name}_cublas_ratio"] = measured.ratio
    for measured in found:
        metrics[f"{measured.step.dtype}_cublas_tflops"] = measured.row()["cublas_tflops"]
    worst = closest([measured.agreement for measured in found])
    metrics |= {"error": worst.error, "error_bound": worst.bound}
    best = found[-1]
    return Result(
        workload=WORKLOAD,
        headline=f"{best.tflops:.1f} TFLOP/s {best.step.dtype}, {best.ratio:.2f} of cuBLAS",
        verified=True,
        simulated=False,
        metrics=metrics | facts | describe(device),
        rows=[*(measured.row() for measured in found), *left_out],
    )


def simulate(device: Device, size: int, options: CudaMatmulOptions) -> Result:
    """Compile every step for a GPU that is not there, and check torch's products in their place."""
    compiler = compiler_if_any(options.compiler, needed=options.source is not None)
    rows: list[dict[str, Scalar]] = []
    found = []
    for step in steps_of(options):
        if compiler is not None:
            compile_matmul(compiler, step.path, arch_of(ABSENT))
        check_edges(step, stand_in, device=device, seed=options.seed)
        a, b = operands((size,) * 3, step.dtype, device=device, seed=options.seed)
        found.append(check_result(f"{step.name}, by torch", product(stand_in, a, b), a, b))
        rows.append(
            {
                "step": step.name,
                "dtype": step.dtype,
                "compiled": compiler is not None,
                "error": found[-1].error,
                "error_bound": found[-1].bound,
            }
        )
    arch = arch_of(ABSENT)
    said = (
        f"{len(rows)} kernel(s) compiled for {arch}" if compiler else "no compiler, none compiled"
    )
    worst = closest(found)
    metrics: dict[str, Scalar] = {
        "compiled": len(rows) if compiler else 0,
        "compiler": compiler.name if compiler else "none",
        "architecture": arch,
        "error": worst.error,
        "error_bound": worst.bound,
        "size": size,
    }
    return Result(
        workload=WORKLOAD,
        headline=headline(said, simulated=True),
        verified=True,
        simulated=True,
        metrics=metrics | describe(device),
        rows=rows,
    )
