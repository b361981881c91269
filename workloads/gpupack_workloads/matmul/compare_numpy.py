# SPDX-License-Identifier: Apache-2.0
"""NumPy on the CPU against torch on the GPU, both with 32-bit floats, from small to large.

Torch is timed twice: the product alone, and with what it takes to get there, the copies of A and B
to the GPU and of C back to the host's memory.

The host's times are a mean of calls that take about 0.1 s together; what takes longer is one call,
the first, with cold caches and, where NumPy computes, threads that have yet to start. NumPy's share
follows from the CPUs of this container (`threads`) and from what else runs on them.

Every element of one is compared with the other's. Each differs from the exact product by at most
L sqrt(K) u |a|.|b| + u |c| (`reference.gemm`), and |a|.|b| is at most the product of the
lengths of a row of A and a column of B, which costs no third product.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.memory import MIB
from gpupack_workloads.reference.agreement import (
    ACCUMULATION_UNIT,
    SAFETY,
    Agreement,
    closest,
    worst,
)
from gpupack_workloads.results import Scalar
from gpupack_workloads.settings import Options
from gpupack_workloads.timing import seconds_per_call

logger = logging.getLogger(__name__)

Matrix = np.ndarray[Any, np.dtype[np.float32]]

SMALLEST, LARGEST, LARGEST_WITHOUT = 256, 4096, 512
ELEMENT_BYTES = 4
# Held at once where the device is the CPU, besides A, B and two products that were made before: A
# and B for NumPy and on the device, and a copy of each on the way there. A product is the seventh.
HOST_MATRICES = 7
# A product that would take NumPy longer than this is left out: a large chosen size, a small pod.
MAX_NUMPY_SECONDS = 10.0
# Small products are repeated until they take about so long together.
TURN_SECONDS = 0.1
MAX_REPEATS = 20
ROWS_AT_A_TIME = 256


@dataclass(frozen=True)
class Comparison:
    """Findings at one size.

    Attributes:
        size: rows and columns of all matrices.
        agreement: agreement of NumPy's product with torch's.
        numpy_seconds: on the CPU.
        torch_seconds: on the device, with the operands there.
        transfer_seconds: the same with the operands in the host's memory, and the result too.
    """

    size: int
    agreement: Agreement
    numpy_seconds: float
    torch_seconds: float
    transfer_seconds: float

    def metrics(self) -> dict[str, Scalar]:
        """Return the figures, ratios first."""
        operations = 2 * self.size**3
        return {
            "speed_up": round(self.numpy_seconds / self.torch_seconds, 3),
            "speed_up_with_transfers": round(self.numpy_seconds / self.transfer_seconds, 3),
            "numpy_seconds": self.numpy_seconds,
            "fp32_seconds": self.torch_seconds,
            "fp32_seconds_with_transfers": self.transfer_seconds,
            "numpy_tflops": round(operations / self.numpy_seconds / 1e12, 4),
            "fp32_tflops": round(operations / self.torch_seconds / 1e12, 4),
            "numpy_error": self.agreement.error,
            "numpy_error_bound": self.agreement.bound,
            "matrices_mib": round(3 * self.size**2 * ELEMENT_BYTES / MIB, 3),
        }

    def row(self) -> dict[str, Scalar]:
        """Return the comparison as a row of the result's table."""
        return {"size": self.size} | self.metrics()


def sizes(chosen: int, *, simulated: bool) -> list[int]:
    """Return doubling sizes, without a GPU only those below the chosen one, which is the last."""
    largest = min(chosen, LARGEST_WITHOUT) if simulated else LARGEST
    doublings = [SMALLEST << power for power in range((largest // SMALLEST).bit_length())]
    return [size for size in doublings if size != chosen] + [chosen]


def compare_sizes(wanted: list[int], *, device: Device, options: Options) -> list[Comparison]:
    """Check and time each size that NumPy can compute in bearable time, at least the first.

    Raises:
        WrongResult: the products differ by more than rounding explains.
    """
    found: list[Comparison] = []
    for size in wanted:
        if found and expected_seconds(size, found[-1]) > MAX_NUMPY_SECONDS:
            logger.warning("NumPy would take too long for %d x %d here: left out", size, size)
            continue
        found.append(compared(size, device=device, seed=options.seed))
        logger.info("%d x %d: NumPy %.2e s", size, size, found[-1].numpy_seconds)
    return found


def expected_seconds(size: int, before: Comparison) -> float:
    """Return how long NumPy would take, by how long a smaller size took."""
    return before.numpy_seconds * (size / before.size) ** 3


def compared(size: int, *, device: Device, seed: int) -> Comparison:
    """Multiply the same matrices on both sides."""
    chance = np.random.default_rng(seed)
    a, b = (chance.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    on_device = partial(torch.matmul, to_device(a, device), to_device(b, device))
    numpy_seconds, product = host_seconds(lambda: a @ b)
    transfer_seconds, _ = host_seconds(lambda: multiply_from_host(a, b, device))
    return Comparison(
        size=size,
        agreement=check(a, b, product, on_device().cpu().numpy()),
        numpy_seconds=numpy_seconds,
        torch_seconds=seconds_per_call(
            on_device, device=device.torch, repeats=3 if device.simulated else MAX_REPEATS
        ),
        transfer_seconds=transfer_seconds,
    )


def check(a: Matrix, b: Matrix, by_numpy: Matrix, by_torch: Matrix) -> Agreement:
    """Compare both products, element by element.

    Raises:
        WrongResult: they differ by more than rounding explains.
    """
    agreement = compare(a, b, by_numpy, by_torch)
    if not agreement.holds:
        raise WrongResult(
            f"NumPy's and torch's product of {len(a)} x {len(a)} matrices differ by"
            f" {agreement.error:.3e} where rounding explains {agreement.bound:.3e}"
        )
    return agreement


def to_device(matrix: Matrix, device: Device) -> torch.Tensor:
    """Copy a matrix to the device."""
    return torch.from_numpy(matrix).to(device.torch, copy=True)


def multiply_from_host(a: Matrix, b: Matrix, device: Device) -> Matrix:
    """Multiply matrices of the host's memory on the device; return the result to the host."""
    product = to_device(a, device) @ to_device(b, device)
    back: Matrix = product.cpu().numpy()
    return back


def host_seconds(work: Callable[[], Matrix]) -> tuple[float, Matrix]:
    """Return the mean time of one call by the host's clock, and the result of the first."""
    start = time.perf_counter()
    result = work()
    first = time.perf_counter() - start
    repeats = min(MAX_REPEATS, int(TURN_SECONDS / first))
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - start) / repeats if repeats else first, result


def compare(a: Matrix, b: Matrix, one: Matrix, other: Matrix) -> Agreement:
    """Compare every element of two products of the same matrices."""
    columns = np.linalg.norm(b, axis=0).astype(np.float64)
    unit = 2 * (SAFETY * np.sqrt(a.shape[1]) + 1) * ACCUMULATION_UNIT
    found = []
    # Some rows at a time: in 64 bits the whole would take four times the product's memory.
    for rows in (
        slice(start, start + ROWS_AT_A_TIME) for start in range(0, len(a), ROWS_AT_A_TIME)
    ):
        lengths = np.outer(np.linalg.norm(a[rows], axis=1), columns)
        error = np.abs(one[rows].astype(np.float64) - other[rows])
        found.append(worst(error=error, bound=unit * lengths))
    return closest(found)
