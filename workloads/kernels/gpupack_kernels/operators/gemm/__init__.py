# SPDX-License-Identifier: Apache-2.0
"""C[M, N] = A[M, K] @ B[K, N] with 32-bit accumulation, and its gradients.

ops        `gemm`, and `gemms` of one A and several B, differentiable: what others use
launch     chooses a kernel and its tiles, without gradients
problem    the operands, checked once
tuning     the tiles, measured per device
hopper     8-bit and 16-bit types on Hopper GPUs
portable   everything else: 32-bit floats, other GPUs, the interpreter
"""
