# SPDX-License-Identifier: Apache-2.0
"""Kernels over pointers of which one is another GPU's.

Nothing is special about it but that the hardware sends loads and stores over the link.
"""

import triton
import triton.language as tl


@triton.jit
def modify_kernel(seen, theirs, count, KEY: tl.constexpr, TILE: tl.constexpr):
    """seen[COUNT] = theirs[COUNT]; theirs[COUNT] ^= KEY, in bytes."""
    position = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = position < count
    found = tl.load(theirs + position, mask=inside, other=0)
    tl.store(seen + position, found, mask=inside)
    tl.store(theirs + position, found ^ KEY, mask=inside)


@triton.jit
def copy_kernel(target, source, count, TILE: tl.constexpr):
    """target[COUNT] = source[COUNT], in words of 8 bytes."""
    position = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = position < count
    tl.store(target + position, tl.load(source + position, mask=inside), mask=inside)


@triton.jit
def ping_kernel(mine, theirs, done, rounds, patience, LEADER: tl.constexpr):
    """Bounce a number: write round r to their memory, wait until it is in ours.

    A flag that does not come within so many looks ends the loop, so that a broken link ends with an
    error and not with a kernel that runs for ever; `done` says how many rounds there were.
    """
    turn = 1
    looks = 0
    while (turn <= rounds) & (looks < patience):
        if LEADER:
            tl.atomic_xchg(theirs, turn, sem="relaxed", scope="sys")
        looks = 0
        while (tl.load(mine, volatile=True) < turn) & (looks < patience):
            looks += 1
        if not LEADER:
            tl.atomic_xchg(theirs, turn, sem="relaxed", scope="sys")
        turn += 1
    tl.store(done, tl.where(looks < patience, turn - 1, turn - 2))
