# SPDX-License-Identifier: Apache-2.0
"""Launches the Hopper kernels: makes tensor descriptors, sizes grids."""

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from gpupack_workloads.kernels.attention.configurations import Configuration
from gpupack_workloads.kernels.attention.hopper.backward.kernel import attention_backward_kernel
from gpupack_workloads.kernels.attention.hopper.forward.kernel import attention_forward_kernel
from gpupack_workloads.kernels.attention.portable.kernel import attention_untile_kernel
from gpupack_workloads.kernels.attention.problem import Problem

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}
# Fixed by the kernels: two groups of 64 rows of queries, tiles of 128 rows of keys, and in the
# backward pass tiles of 64 rows of queries.
GROUP_M = 64
TILE_N = 128
BACKWARD_M = 64


def descriptor(x: torch.Tensor, rows: int) -> TensorDescriptor:
    """Describe tiles of `rows` rows of one head; rows beyond the end read as zero, and stay."""
    block = [1, 1, rows, x.shape[3]]
    layout = gl.NVMMASharedLayout.get_default_for(block, DTYPES[x.dtype])
    # A stride that is never used may be anything, and a descriptor wants multiples of 16 bytes.
    strides = [s if n > 1 else x.shape[3] for s, n in zip(x.stride(), x.shape, strict=True)]
    return TensorDescriptor(x, list(x.shape), [*strides[:3], 1], block, layout)


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    problem: Problem,
    configuration: Configuration,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return O and each row's log-sum-exp2 of scaled scores."""
    o = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    lse = torch.empty(q.shape[:3], device=q.device, dtype=torch.float32)
    grid = (triton.cdiv(problem.rows, 2 * GROUP_M) * problem.batch * problem.heads,)
    attention_forward_kernel[grid](
        *(descriptor(q, GROUP_M), descriptor(k, TILE_N), descriptor(v, TILE_N)),
        *(
            descriptor(o, GROUP_M),
            lse,
            problem.rows,
            problem.keys,
            problem.heads,
            problem.heads_per_kv,
        ),
        problem.scale_log2,
        CAUSAL=problem.causal,
        RAGGED=problem.keys % TILE_N != 0,
        STAGES=configuration.forward_stages,
        num_warps=4,
    )
    return o, lse


def backward(
    inputs: Inputs,
    do: torch.Tensor,
    sums: tuple[torch.Tensor, torch.Tensor],
    problem: Problem,
    configuration: Configuration,
) -> Inputs:
    """Return dQ, dK and dV; `sums` are the log-sum-exp2 and the sum of O dO of each row."""
    q, k, v = inputs
    dq, dk, dv = (torch.empty(x.shape, device=x.device, dtype=x.dtype) for x in inputs)
    padded = triton.cdiv(problem.rows, BACKWARD_M) * BACKWARD_M
    tiled = torch.zeros(
        (problem.batch * problem.heads, padded * problem.dimension),
        device=q.device,
        dtype=torch.float32,
    )
    attention_backward_kernel[
        (triton.cdiv(problem.keys, TILE_N) * problem.batch * problem.kv_heads,)
    ](
        *(descriptor(q, BACKWARD_M), descriptor(k, TILE_N), descriptor(v, TILE_N)),
        *(descriptor(do, BACKWARD_M), descriptor(dk, TILE_N), descriptor(dv, TILE_N)),
        *(tiled, *sums, problem.rows, problem.keys, problem.kv_heads, problem.heads_per_kv),
        *(problem.scale, problem.scale_log2),
        CAUSAL=problem.causal,
        RAGGED=problem.keys % TILE_N != 0,
        STAGES=configuration.backward_stages,
        STAGGER=configuration.backward_stagger,
        num_warps=8,
    )
    attention_untile_kernel[(triton.cdiv(problem.rows, 64), problem.batch * problem.heads)](
        *(tiled, dq, problem.rows, padded, problem.scale), TILE_M=64, D=problem.dimension
    )
    return dq, dk, dv
