# SPDX-License-Identifier: Apache-2.0
"""Checks that a GPU can read and modify every byte of another's memory.

A kernel on the reader reads every byte of the owner's buffer and changes it in place: the reader
compares what it read, the owner what it has then, and the margins around it. Each compares with the
pattern made again on its own GPU.
"""

import torch

from gpupack_kernels.communication.peer.launch import modify
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.p2p.pair import Pair
from gpupack_workloads.p2p.pattern import KEY, count_wrong, write

MARGIN = 4096
# Not a multiple of anything: the kernel's last tile is ragged.
SHORT_BY = 13


def check(pair: Pair, size: int, seed: int) -> int:
    """Read and modify the owner's memory; return how many bytes were checked.

    Raises:
        WrongResult: a byte is wrong on either side.
    """
    count = max(1, size - SHORT_BY)
    whole = torch.zeros(count + 2 * MARGIN, dtype=torch.uint8, device=pair.there)
    write(whole, seed)
    seen = torch.zeros(count, dtype=torch.uint8, device=pair.here)
    torch.cuda.synchronize(pair.there)
    with torch.cuda.device(pair.here):
        modify(seen, whole[MARGIN : MARGIN + count], key=KEY)
        torch.cuda.synchronize(pair.here)
    before, own, after = whole.split((MARGIN, count, MARGIN))
    wrong = {
        "read": count_wrong(seen, seed, first=MARGIN),
        "modified": count_wrong(own, seed, first=MARGIN, key=KEY),
        "around": count_wrong(before, seed) + count_wrong(after, seed, first=MARGIN + count),
    }
    if any(wrong.values()):
        raise WrongResult(
            f"GPU {pair.reader} in the memory of GPU {pair.owner}: of {count} bytes"
            f" {wrong['read']} were read wrongly, {wrong['modified']} modified wrongly,"
            f" {wrong['around']} around them changed"
        )
    return count
