# SPDX-License-Identifier: Apache-2.0
"""Attention of one new token of each sequence over keys and values in pages.

    ops       `paged_decode_attention`: what others use
    problem   what is to be computed, checked once
    launch    chooses tiles and parts, sizes grids
    kernel    the Triton kernels

Bytes: every key and value of a sequence is read once, for all query heads that share it; nothing is
gathered. One token has too few heads to fill a GPU, so a sequence is cut into parts that are
computed side by side and put together by a second kernel (Flash-Decoding, Dao et al., 2023).
"""
