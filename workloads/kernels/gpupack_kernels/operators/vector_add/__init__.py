# SPDX-License-Identifier: Apache-2.0
"""z[i] = x[i] + y[i]: the smallest kernel, and the pattern of the others.

    ops      `vector_add`, differentiable: what others use
    launch   checks arguments, sizes the grid
    kernel   the Triton kernel

Bytes: both inputs read once, the output written once. One addition per 12 bytes (fp32) is far below
what a GPU computes per byte, so memory bandwidth is the whole time.
"""
