# SPDX-License-Identifier: Apache-2.0
"""Attention over sequences of different lengths that lie one behind the other, without padding.

    ops       `attention_varlen`, differentiable: what others use
    problem   what is to be computed, checked once
    launch    sizes grids
    kernel    the Triton kernels

No longest length is asked for, which would have to be known on the host and decide how many
programs there are: a program finds its sequence by its number (see `kernel`), so that one long
sequence among short ones costs no idle programs, and a length that was told wrongly no rows.
"""
