# SPDX-License-Identifier: Apache-2.0
"""How torn free GPUs are, whatever is asked for.

FGD's measure (`fragmentation`) needs to know that; this one says what the largest job on one node
would find:

    torn = 1 - Σ B · ⌊idle / B⌋ / Σ idle     over all nodes

idle: whole GPUs that are free on a node; B: GPUs of the largest node.
"""

from gpupack_core.arrays import Arrays


def torn(arrays: Arrays) -> float:
    """Part of the free GPUs, 0 to 1, in no free block of the largest node's size; 0: none free."""
    idle, block = arrays.idle_gpus, int(arrays.gpus.max(initial=0))
    free = int(idle.sum())
    return 1 - int((idle // block * block).sum()) / free if free else 0.0
