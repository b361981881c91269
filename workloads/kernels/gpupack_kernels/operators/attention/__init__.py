# SPDX-License-Identifier: Apache-2.0
"""Fused attention: softmax(Q K' scale) V without the matrix of scores in memory.

ops        `attention`, differentiable: what others use
launch     chooses the kernels
problem    what is to be computed, checked once
tuning     how the Hopper kernels run on each device
hopper     16-bit types on Hopper GPUs, in Gluon
portable   everything else: 32-bit floats, other GPUs, heads of other widths, the interpreter
"""
