# SPDX-License-Identifier: Apache-2.0
"""Fused attention: softmax(Q K' scale) V without the matrix of scores in memory.

`autograd.attention` is the function. On Hopper it runs the Gluon kernels in `hopper`; elsewhere,
for 32-bit numbers and in the interpreter the plain Triton kernels in `portable`. Importing either
imports Triton, which decides at that moment whether kernels are compiled or interpreted: set
TRITON_INTERPRET before.
"""
