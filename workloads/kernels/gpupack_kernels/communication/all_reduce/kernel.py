# SPDX-License-Identifier: Apache-2.0
"""total[COUNT] = the sum over all ranks of mine[COUNT], in 32-bit floats.

Every rank writes packets into every rank's inbox and waits for those in its own. A packet is one
64-bit word: a float, and above it the number of the call. Hardware writes 8 aligned bytes at once,
so a rank that sees the number sees the float; neither fence nor barrier is needed: the time is one
way over the link, where a barrier followed by reads from peers takes three.

An inbox holds two calls. A rank that writes call c + 2 has ended c + 1, for which it needed every
rank's packets of c + 1, which a rank sends when it has ended c: no rank still reads what is
overwritten. The call's number lives in the device's memory so that a CUDA graph can replay the
kernel; a program has its own number and its own places, since sizes (so grids) may alternate.

Floats are added in the order of ranks: all ranks get the same bits.
"""

import triton
import triton.language as tl


@triton.jit
def all_reduce_kernel(
    mine, total, inboxes, calls, count, places,
    RANK: tl.constexpr, RANKS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Push to every inbox, wait for the own inbox, and add."""
    program = tl.program_id(0)
    call = tl.load(calls + program) + 1
    position = program * TILE + tl.arange(0, TILE)
    inside = position < count
    value = tl.load(mine + position, mask=inside, other=0.0)
    bits = value.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    packet = bits | (call.to(tl.int64) << 32)
    half = (call & 1) * RANKS * places
    for step in tl.static_range(1, RANKS):
        inbox = tl.load(inboxes + (RANK + step) % RANKS).to(tl.pointer_type(tl.int64))
        tl.store(inbox + half + RANK * places + position, packet, mask=inside)
    own = tl.load(inboxes + RANK).to(tl.pointer_type(tl.int64)) + half + position
    summed = tl.zeros((TILE,), tl.float32)
    for rank in tl.static_range(RANKS):
        if rank == RANK:
            summed += value
        else:
            word = tl.load(own + rank * places, mask=inside, other=0, volatile=True)
            while tl.sum((inside & ((word >> 32).to(tl.int32) != call)).to(tl.int32)) != 0:
                word = tl.load(own + rank * places, mask=inside, other=0, volatile=True)
            summed += (word & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)
    tl.store(total + position, summed, mask=inside)
    tl.store(calls + program, call)
