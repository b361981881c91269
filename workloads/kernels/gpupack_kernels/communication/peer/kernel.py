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
def put_kernel(
    mine, theirs, their_signals, my_signals, calls, missed, count, max_polls, TILE: tl.constexpr
):
    """theirs[COUNT] = mine[COUNT] in words of 8 bytes; signal it there, and wait for theirs here.

    Every program has a signal of its own at its place: it puts its tiles, then the number of the
    call (release: a GPU that sees the number sees the words), then waits until its own signal has
    that number (acquire). So a call ends when the other GPU's words have arrived.
    The numbers are in the device's memory, since grids, so programs, change with sizes.

    A signal that does not come within so many polls ends the wait and is counted in `missed`.
    """
    program = tl.program_id(0)
    call = tl.load(calls + program) + 1
    step = tl.num_programs(0).to(tl.int64) * TILE
    first = program.to(tl.int64) * TILE
    while first < count:
        position = first + tl.arange(0, TILE)
        inside = position < count
        tl.store(theirs + position, tl.load(mine + position, mask=inside), mask=inside)
        first += step
    # The release is one thread's; the others' stores must come before it.
    tl.debug_barrier()
    tl.atomic_xchg(their_signals + program, call, sem="release", scope="sys")
    polls = 0
    seen = tl.atomic_add(my_signals + program, 0, sem="acquire", scope="sys")
    while (seen < call) & (polls < max_polls):
        seen = tl.atomic_add(my_signals + program, 0, sem="acquire", scope="sys")
        polls += 1
    if seen < call:
        tl.atomic_add(missed, 1)
    tl.store(calls + program, call)


@triton.jit
def ping_kernel(mine, theirs, done, rounds, max_polls, LEADER: tl.constexpr):
    """Bounce a number: write round r to the other's memory, wait until it is in ours.

    A flag that does not come within so many polls ends the loop, so that a broken link ends with an
    error and not with a kernel that runs for ever; `done` says how many rounds there were.
    """
    turn = 1
    polls = 0
    while (turn <= rounds) & (polls < max_polls):
        if LEADER:
            tl.atomic_xchg(theirs, turn, sem="relaxed", scope="sys")
        polls = 0
        while (tl.load(mine, volatile=True) < turn) & (polls < max_polls):
            polls += 1
        if not LEADER:
            tl.atomic_xchg(theirs, turn, sem="relaxed", scope="sys")
        turn += 1
    tl.store(done, tl.where(polls < max_polls, turn - 1, turn - 2))
