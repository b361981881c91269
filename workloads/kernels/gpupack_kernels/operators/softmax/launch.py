# SPDX-License-Identifier: Apache-2.0
"""Launches the softmax kernels: checks the arguments, chooses a plan, sizes the grid."""

from collections.abc import Callable
from typing import Any

import torch
import triton

from gpupack_kernels.devices import device_of
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.softmax.kernel import (
    backward_chunks_kernel,
    backward_passes_kernel,
    backward_rows_kernel,
    forward_chunks_kernel,
    forward_passes_kernel,
    forward_rows_kernel,
)
from gpupack_kernels.operators.softmax.tuning import (
    Chunks,
    Direction,
    Passes,
    Plan,
    Rows,
    choose_plan,
    interpreted_plan,
)
from gpupack_kernels.rows import DTYPES, as_rows, block_of

Kernel = Any


def forward(x: torch.Tensor) -> torch.Tensor:
    """Return softmax over the last dimension.

    Raises:
        Unsupported: the type or the device does not fit, or x is a single number.
    """
    check(x)
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    if x.numel():
        _launch("forward", [as_rows(x)], as_rows(y))
    return y


def backward(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """Return the gradient of x, given softmax(x) and its gradient."""
    dx = torch.empty(y.shape, device=y.device, dtype=y.dtype)
    if y.numel():
        _launch("backward", [as_rows(y), as_rows(dy)], as_rows(dx))
    return dx


def check(x: torch.Tensor) -> None:
    """Refuse what has no softmax here."""
    if x.dim() == 0:
        raise Unsupported("softmax needs rows, and not a single number")
    if x.dtype not in DTYPES:
        raise Unsupported(f"softmax of {x.dtype} is not computed here; use one of {DTYPES}")
    if x.dtype == torch.bfloat16 and not x.is_cuda:
        raise Unsupported("bfloat16 needs a GPU: Triton's interpreter computes it wrongly")


def _launch(direction: Direction, inputs: list[torch.Tensor], output: torch.Tensor) -> None:
    count, columns = output.shape
    plan = plan_for(direction, [*inputs, output])
    strides = [matrix.stride(0) for matrix in (*inputs, output)]
    launchers: dict[type, Callable[..., None]] = {
        Rows: _launch_rows,
        Chunks: _launch_chunks,
        Passes: _launch_passes,
    }
    with device_of(output):
        launchers[type(plan)](plan, direction, [*inputs, output], (count, columns), strides)


def plan_for(direction: Direction, matrices: list[torch.Tensor]) -> Plan:
    """Return how these rows are computed where they are."""
    columns = matrices[0].shape[1]
    if not matrices[0].is_cuda:
        return interpreted_plan(columns)
    return choose_plan(direction, columns=columns, element_bytes=matrices[0].element_size())


def _launch_rows(
    plan: Rows,
    direction: Direction,
    matrices: list[torch.Tensor],
    shape: tuple[int, int],
    strides: list[int],
) -> None:
    kernel: Kernel = forward_rows_kernel if direction == "forward" else backward_rows_kernel
    kernel[(triton.cdiv(shape[0], plan.rows),)](
        *matrices,
        *shape,
        *strides,
        ROWS=plan.rows,
        BLOCK=block_of(shape[1]),
        EXACT=block_of(shape[1]) == shape[1],
        num_warps=plan.warps,
    )


def _launch_chunks(
    plan: Chunks,
    direction: Direction,
    matrices: list[torch.Tensor],
    shape: tuple[int, int],
    strides: list[int],
) -> None:
    kernel: Kernel = forward_chunks_kernel if direction == "forward" else backward_chunks_kernel
    looks = {"LOOKS": plan.looks} if direction == "forward" else {}
    kernel[(shape[0],)](
        *matrices,
        shape[1],
        *strides,
        CHUNK=plan.chunk,
        CHUNKS=triton.cdiv(shape[1], plan.chunk),
        EXACT=shape[1] % plan.chunk == 0,
        **looks,
        num_warps=plan.warps,
    )


def _launch_passes(
    plan: Passes,
    direction: Direction,
    matrices: list[torch.Tensor],
    shape: tuple[int, int],
    strides: list[int],
) -> None:
    kernel: Kernel = forward_passes_kernel if direction == "forward" else backward_passes_kernel
    kernel[(shape[0],)](
        *matrices,
        shape[1],
        *strides,
        CHUNK=plan.chunk,
        STAGES=plan.stages,
        num_warps=plan.warps,
    )
