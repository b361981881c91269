# SPDX-License-Identifier: Apache-2.0
"""Fused attention: softmax(Q K' scale) V without the matrix of scores in memory.

    ops        `attention`, differentiable: what others use
    problem    what is to be computed, checked once
    tuning     how the Hopper kernels run on each device
    hopper     16-bit types on Hopper GPUs, in Gluon
    portable   everything else: 32-bit floats, other GPUs, heads of other widths, the interpreter
    varlen     `attention_varlen`: sequences of different lengths, one behind the other
    paged      `paged_decode_attention`: one token each over keys and values in pages

Importing `ops` imports Triton, which decides at that moment whether kernels are compiled or
interpreted: set TRITON_INTERPRET before.
"""
