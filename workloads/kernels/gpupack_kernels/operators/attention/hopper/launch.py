# SPDX-License-Identifier: Apache-2.0
"""Launches the Hopper kernels: makes tensor descriptors, sizes grids."""

import torch
import triton
from triton.experimental.gluon import language as gl

from gpupack_kernels.devices import properties_of
from gpupack_kernels.operators.attention.hopper.backward import attention_backward_kernel
from gpupack_kernels.operators.attention.hopper.forward import attention_forward_kernel
from gpupack_kernels.operators.attention.portable.kernel import attention_round_kernel
from gpupack_kernels.operators.attention.problem import Problem
from gpupack_kernels.operators.attention.tuning import Configuration, owners_together
from gpupack_kernels.tensor_maps import TensorMap

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}
# Fixed by the kernels: two groups of 64 rows of queries, tiles of 128 rows of keys, and in the
# backward pass tiles of 64 rows of queries.
GROUP_M = 64
TILE_N = 128
BACKWARD_M = 64
ROUND_TILE = 4096


def descriptor(x: torch.Tensor, rows: int) -> TensorMap:
    """Describe tiles of `rows` rows of one head; rows beyond the end read as zero, and stay."""
    block = [1, 1, rows, x.shape[3]]
    layout = gl.NVMMASharedLayout.get_default_for(block, DTYPES[x.dtype])
    # A stride that is never used may be anything, and a descriptor wants multiples of 16 bytes.
    strides = [s if n > 1 else x.shape[3] for s, n in zip(x.stride(), x.shape, strict=True)]
    return TensorMap(x, list(x.shape), [*strides[:3], 1], block, layout)


def together(owners: int, tiles: int, problem: Problem, q: torch.Tensor) -> int:
    """Return how many heads' tiles start side by side; without a mask all are equally long."""
    if not problem.causal:
        return 1
    at_once = int(properties_of(q).multi_processor_count)
    return owners_together(owners, tiles, programs_at_once=at_once)


def sums_descriptor(x: torch.Tensor) -> TensorMap:
    """Describe what belongs to one tile of rows of queries."""
    return TensorMap(x, [x.numel()], [1], [BACKWARD_M], gl.NVMMASharedLayout(0, 32, rank=1))


def forward(
    qkv: Inputs,
    results: tuple[torch.Tensor, torch.Tensor],
    problem: Problem,
    configuration: Configuration,
) -> None:
    """Write O and each row's log-sum-exp2 of scaled scores."""
    (q, k, v), (o, lse) = qkv, results
    owners, tiles = problem.batch * problem.heads, triton.cdiv(problem.rows, 2 * GROUP_M)
    attention_forward_kernel[(owners * tiles,)](
        *(descriptor(q, GROUP_M), descriptor(k, TILE_N), descriptor(v, TILE_N)),
        *(
            descriptor(o, GROUP_M),
            lse,
            problem.rows,
            problem.keys,
            problem.heads,
            problem.heads_per_kv,
        ),
        *(owners, together(owners, tiles, problem, q), problem.scale_log2),
        CAUSAL=problem.causal,
        STAGES=configuration.forward_stages,
        num_warps=4,
    )


def backward(
    inputs: Inputs,
    do: torch.Tensor,
    sums: tuple[torch.Tensor, torch.Tensor],
    gradients: Inputs,
    problem: Problem,
    configuration: Configuration,
) -> None:
    """Write dQ, dK and dV; `sums` are the log-sum-exp2 and the sum of O dO of each row."""
    (q, k, v), (dq, dk, dv) = inputs, gradients
    # In the same order as dq, whose kernel has no dimensions.
    sum_dq = torch.zeros_like(dq, dtype=torch.float32)
    owners, tiles = problem.batch * problem.kv_heads, triton.cdiv(problem.keys, TILE_N)
    attention_backward_kernel[(owners * tiles,)](
        *(descriptor(q, BACKWARD_M), descriptor(k, TILE_N), descriptor(v, TILE_N)),
        *(descriptor(do, BACKWARD_M), *(sums_descriptor(x) for x in sums)),
        *(descriptor(sum_dq, BACKWARD_M), descriptor(dk, TILE_N), descriptor(dv, TILE_N)),
        *(problem.rows, problem.keys, problem.kv_heads, problem.heads_per_kv),
        *(owners, together(owners, tiles, problem, q), problem.scale, problem.scale_log2),
        CAUSAL=problem.causal,
        RAGGED=not problem.causal and problem.keys % TILE_N != 0,
        STAGES=configuration.backward_stages,
        STAGGER=configuration.backward_stagger,
        num_warps=8,
    )
    attention_round_kernel[(triton.cdiv(dq.numel(), ROUND_TILE),)](
        sum_dq, dq, dq.numel(), problem.scale, TILE=ROUND_TILE
    )
