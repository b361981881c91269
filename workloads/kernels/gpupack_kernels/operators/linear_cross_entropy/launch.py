# SPDX-License-Identifier: Apache-2.0
"""Launches the kernels of the loss, chunk by chunk of tokens: checks the arguments, sizes grids.

Logits are by our kernel for Hopper where it takes the operands, since it is a few percent faster
there; products of gradients, of long sums, are torch's, by cuBLAS on a GPU.
"""

import torch
import triton

from gpupack_kernels.devices import device_of
from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.gemm.launch import multiply_on_hopper
from gpupack_kernels.operators.gemm.problem import has_map
from gpupack_kernels.operators.linear_cross_entropy.kernel import loss_kernel, scale_kernel
from gpupack_kernels.rows import INTERPRETED_BLOCK, block_of, require

Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
# Tokens: fewer would leave a product's tiles too few, and other numbers leave some half empty.
MIN_CHUNK, MULTIPLE = 1024, 128
# Words: with 32 warps one program fills a multiprocessor, and its row stays in the L2 cache.
WORDS, WARPS, STAGES = 16384, 32, 1
SCALED_BYTES, SCALE_WARPS = 16384, 8


def forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    ignored: int,
    wants_x: bool,  # noqa: FBT001  an operator's arguments have no names
    wants_weight: bool,  # noqa: FBT001
) -> Parts:
    """Return loss, how many tokens count, and sums over tokens of the gradients that are wanted."""
    rows, right = x.reshape(targets.numel(), x.shape[-1]), targets.reshape(-1).contiguous()
    dx, dweight = empty_sums(x, weight, wants_x=wants_x, wants_weight=wants_weight)
    losses = torch.empty(right.shape, device=x.device, dtype=torch.float32)
    if not x.numel():
        dweight.zero_()
    count = (right != ignored).sum(dtype=torch.float32)
    length = chunk_length(rows.shape[0], rows.shape[1])
    buffer = rows.new_empty((min(length, rows.shape[0]), weight.shape[0]))
    with device_of(x):
        for first in range(0, rows.shape[0], length):
            chunk = slice(first, first + length)
            g = buffer[: len(rows[chunk])]
            _write_logits(rows[chunk], weight, g)
            _write_losses(g, right[chunk], losses[chunk], ignored, gradient=wants_x or wants_weight)
            if wants_x:
                torch.mm(g, weight, out=dx.view(rows.shape)[chunk])
            if wants_weight:
                dweight.addmm_(g.T, rows[chunk], beta=1 if first else 0)
    return losses.sum() / count, count, dx, dweight


def backward(sums: torch.Tensor, gradient: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Return sums * gradient / count, rounded once; no tokens have no gradients."""
    result = torch.empty_like(sums)
    if sums.numel():
        block = SCALED_BYTES // sums.element_size() if sums.is_cuda else INTERPRETED_BLOCK
        with device_of(sums):
            scale_kernel[(triton.cdiv(sums.numel(), block),)](
                *(sums, result, gradient, count, sums.numel()),
                BLOCK=block,
                num_warps=SCALE_WARPS,
            )
    return result


def chunk_length(tokens: int, columns: int) -> int:
    """Return the number of tokens of a chunk: about the number of columns, in equal chunks."""
    chunks = max(1, triton.cdiv(tokens, max(columns, MIN_CHUNK)))
    return triton.cdiv(triton.cdiv(tokens, chunks), MULTIPLE) * MULTIPLE or MULTIPLE


def check(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> None:
    """Refuse operands that have no loss here."""
    require("linear_cross_entropy", x, weight)
    if x.dtype != weight.dtype:
        raise Unsupported(f"x is of {x.dtype} and the weight of {weight.dtype}")
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[1] or not weight.shape[0]:  # noqa: PLR2004  a matrix
        raise Unsupported(f"x {tuple(x.shape)} and a weight {tuple(weight.shape)} have no logits")
    if targets.shape != x.shape[:-1] or targets.dtype != torch.int64 or targets.device != x.device:
        raise Unsupported(
            f"targets of {targets.dtype} {tuple(targets.shape)} on {targets.device} are not one"
            f" 64-bit number for each of {tuple(x.shape[:-1])} tokens on {x.device}"
        )


def empty_sums(
    x: torch.Tensor, weight: torch.Tensor, *, wants_x: bool, wants_weight: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return empty tensors for the requested gradients, and None for others."""
    return (
        x.new_empty(x.shape if wants_x else (0,)),
        weight.new_empty(weight.shape if wants_weight else (0,)),
    )


def _write_logits(rows: torch.Tensor, weight: torch.Tensor, logits: torch.Tensor) -> None:
    """Write a product; operands that our kernel would have to copy first are none for it."""
    mapped = rows.numel() and all(has_map(matrix) for matrix in (rows, weight, logits))
    if not (mapped and multiply_on_hopper(rows, weight.T, logits)):
        torch.mm(rows, weight.T, out=logits)


def _write_losses(
    logits: torch.Tensor,
    targets: torch.Tensor,
    losses: torch.Tensor,
    ignored: int,
    *,
    gradient: bool,
) -> None:
    """Write the losses of a chunk, and G over its logits."""
    rows, words = logits.shape
    most = WORDS if logits.is_cuda else INTERPRETED_BLOCK
    loss_kernel[(rows,)](
        *(logits, targets, losses, words, logits.stride(0), ignored),
        CHUNK=min(block_of(words), most),
        STAGES=STAGES,
        GRADIENT=gradient,
        num_warps=WARPS,
    )
