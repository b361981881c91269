# SPDX-License-Identifier: Apache-2.0
"""Attention over packed sequences of different lengths, without padding.

    ops       `attention_varlen`, differentiable: what others use
    problem   what is to be computed, checked once
    launch    sizes grids
    kernel    the Triton kernels

The longest length is not a parameter, which would have to be known on the host and decide how many
programs there are: a program finds its sequence by its number (see `kernel`), so that one long
sequence among short ones costs no idle programs, and a wrong length no rows.
"""
