# SPDX-License-Identifier: Apache-2.0
"""y = x / sqrt(mean(x^2) + epsilon) * weight over the last dimension (Zhang and Sennrich, 2019).

    ops      `rms_norm`, differentiable: what others use
    launch   checks arguments, sizes grids
    kernel   the Triton kernels

With r = 1 / sqrt(mean(x^2) + epsilon) and g = weight dy of a row of N:

    dx = r (g - x r mean(g x r)),    dweight = sum over rows of dy x r

Bytes: forward reads x and writes y and one r per row. Backward reads x and dy and writes dx; the
gradient of the weight comes out of the same pass, as sums of each program's rows.
"""
