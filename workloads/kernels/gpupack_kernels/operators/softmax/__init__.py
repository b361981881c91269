# SPDX-License-Identifier: Apache-2.0
"""softmax(x) over the last dimension, and its gradient, fused.

    ops      `softmax`, differentiable: what others use
    launch   checks arguments, sizes grids
    tuning   which of the kernel's three ways computes a length of rows
    kernel   the Triton kernels

Bytes: forward reads x and writes y, backward reads y and dy and writes dx; with every value read
once and written once the time is that of a copy, so this is where the bar stands.
"""
