# SPDX-License-Identifier: Apache-2.0
"""Rotary positions (Su et al., 2021) of queries and keys, in one pass over both.

    ops      `rotary`, differentiable: what others use
    launch   checks arguments, sizes grids
    kernel   the Triton kernel

Number i of a head's first half and number i of its second are turned by an angle of the token:

    left'  = left cos - right sin,    right' = right cos + left sin

Its gradient is the turn by the opposite angle. Bytes: all heads read once and written once; cosines
and sines are read once per token and serve all of its heads.
"""
