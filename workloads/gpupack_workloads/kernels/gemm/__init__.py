# SPDX-License-Identifier: Apache-2.0
"""C[M, N] = A[M, K] @ B[K, N] with 32-bit accumulation, and its gradients.

    ops      `gemm`, and `gemms` of one A and several B, differentiable: what others use
    launch   chooses a kernel and its tiles, without gradients
    tuning   the tiles, measured per device
    hopper   8-bit and 16-bit types on Hopper GPUs
    kernel   everything else: 32-bit floats, other GPUs, the interpreter

Importing `ops` imports Triton, which decides at that moment whether kernels are compiled or
interpreted: set TRITON_INTERPRET before.
"""
