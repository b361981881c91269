# SPDX-License-Identifier: Apache-2.0
"""Tasks for any GPU: shapes carry suffixes, M rows of A, N columns of B, K what is summed over."""

import time

import numpy as np
import numpy.typing as npt
import torch

from gpupack_workloads.gpu_manager.worker import TaskContext
from gpupack_workloads.reference.agreement import Agreement
from gpupack_workloads.reference.freivalds import (
    Strips,
    checksums_of_product,
    compare,
    random_signs,
    strip_width,
)
from gpupack_workloads.seeds import generator_seed

Floats = npt.NDArray[np.float32]


def nothing(context: TaskContext) -> None:
    """Do nothing: what this takes is the manager's own."""
    del context


def vector_add(context: TaskContext, x: Floats, y: Floats) -> torch.Tensor:
    """Return x + y, in 32 bits; takes three vectors of memory, and one of results."""
    a, b = (_on_device(context, vector) for vector in (x, y))
    return torch.add(a, b, out=context.memory.empty(x.shape, torch.float32))


def matmul(context: TaskContext, a_mk: Floats, b_kn: Floats) -> torch.Tensor:
    """Return A @ B, in 32 bits; takes the three matrices of memory, and C of results."""
    a, b = (_on_device(context, matrix) for matrix in (a_mk, b_kn))
    c_mn = context.memory.empty((a_mk.shape[0], b_kn.shape[1]), torch.float32)
    return torch.mm(a, b, out=c_mn)


def products(
    context: TaskContext, size: int, dtype: torch.dtype, count: int, seed: int
) -> Agreement:
    """Multiply random square matrices so many times, and compare checksums of the last product.

    Takes three matrices of memory; the checksums, in 64 bits, take torch's memory outside the pool.
    """
    chance = torch.Generator(context.device).manual_seed(generator_seed(seed))
    a, b, c = (context.memory.empty((size, size), dtype) for _ in range(3))
    for matrix in (a, b):
        matrix.normal_(generator=chance)
    c.fill_(torch.nan)
    for _ in range(count):
        torch.mm(a, b, out=c)
    strips = Strips(random_signs(size, chance), strip_width(size))
    return compare(c, checksums_of_product(a, b, strips), strips)


def take_too_much(context: TaskContext, size: int) -> None:
    """Allocate so many bytes, whatever the quota is."""
    context.memory.empty((size,), torch.uint8)


def hang(context: TaskContext) -> None:
    """Sleep for ever."""
    del context
    while True:
        time.sleep(1)


def _on_device(context: TaskContext, values: Floats) -> torch.Tensor:
    copy = context.memory.empty(values.shape, torch.float32)
    copy.copy_(torch.from_numpy(values))
    return copy
