# SPDX-License-Identifier: Apache-2.0
"""z = silu(gate) up, silu(g) = g / (1 + exp(-g)) (Shazeer, 2020), and its gradients, each one pass.

    ops      `swiglu`, differentiable: what others use
    launch   checks arguments, sizes grids
    kernel   the Triton kernels

With s = 1 / (1 + exp(-gate)):

    dgate = dz up s (1 + gate (1 - s)),    dup = dz gate s

Bytes: forward reads two tensors and writes one, backward reads three and writes two; s is computed
again.
"""
