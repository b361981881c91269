# SPDX-License-Identifier: Apache-2.0
"""Fragmentation of free GPUs, independent of the requests.

FGD's measure (`fragmentation`) needs the requests. This one shows what the largest job on one node
would find:

    fragmented = 1 - Σ B · ⌊idle / B⌋ / Σ idle     over all nodes

idle: whole GPUs that are free on a node; B: GPUs of the largest node.
"""

from gpupack_placement.arrays import Arrays


def fragmented_fraction(arrays: Arrays) -> float:
    """Return the fraction of free GPUs outside free blocks of the largest node's size.

    The result is from 0 to 1; it is 0 if no GPU is free.
    """
    idle, block = arrays.idle_gpus, int(arrays.gpus.max(initial=0))
    free = int(idle.sum())
    return 1 - int((idle // block * block).sum()) / free if free else 0.0
