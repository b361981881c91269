# SPDX-License-Identifier: Apache-2.0
"""C[M, N] = A[M, K] @ B[K, N] with 32-bit accumulation.

Importing `launch` imports Triton, which decides at that moment whether kernels are compiled or
interpreted: set TRITON_INTERPRET before.
"""
