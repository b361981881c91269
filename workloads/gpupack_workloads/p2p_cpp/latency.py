# SPDX-License-Identifier: Apache-2.0
"""Measures the latency of one small access to another GPU's memory.

A number that is written there: half the time that it takes there and back between two kernels that
each wait for it in their own memory, ours and Triton's. A load, and a compare and swap: the time
of each of many, where none begins before the answer to the one before has come.
"""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch

from gpupack_kernels.communication.peer import launch as triton_kernels
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.p2p_cpp.access import native_atomics
from gpupack_workloads.p2p_cpp.sides import DONE, FLAG, RING, RING_WORDS, Pair, Side
from gpupack_workloads.results import Scalar

# The median of so many batches is used: a virtual machine pauses now and then.
BATCHES = 5
ROUNDS = 1024


class Bounce(Protocol):
    """One of the two kernels of a ping-pong."""

    def __call__(self, side: Side, peer: Side, *, rounds: int, leads: bool) -> None:
        """Begin to be that of a side; the leading one sends first."""


def latencies(pair: Pair) -> dict[str, Scalar]:
    """Return the microseconds of each, of two GPUs that have access to each other.

    Raises:
        WrongResult: a number never came, or was not what it should be.
    """
    atomic = native_atomics(pair.target.device, pair.source.device)
    found: dict[str, Scalar] = {
        "latency_us": _us(partial(bounce, pair, by_cpp), trips=2),
        "triton_latency_us": _us(partial(bounce, pair, by_triton), trips=2),
        "load_us": _us(partial(chase, pair)),
        "native_atomics": atomic,
    }
    if atomic:
        found["swap_us"] = _us(partial(swap, pair))
    return found


def bounce(pair: Pair, send: Bounce, rounds: int) -> float:
    """Send a number there and back; return the seconds of all rounds together.

    Raises:
        WrongResult: a number never came.
    """
    source, target = pair.source, pair.target
    clear(pair)
    send(target, source, rounds=rounds, leads=False)
    source.clock.start()
    send(source, target, rounds=rounds, leads=True)
    seconds = source.clock.stop()
    pair.settle()
    least = min(int(side.word(DONE).item()) for side in (source, target))
    if least != rounds:
        raise WrongResult(f"{pair}: a number got lost in round {least + 1} of {rounds}")
    return seconds


def by_cpp(side: Side, peer: Side, *, rounds: int, leads: bool) -> None:
    """Run one side of the ping-pong by our kernel."""
    side.kernels.bounce(
        *(side.address(FLAG), peer.address(FLAG), side.address(DONE)),
        rounds=rounds,
        leads=leads,
        stream=side.stream,
    )


def by_triton(side: Side, peer: Side, *, rounds: int, leads: bool) -> None:
    """Run one side of the ping-pong by Triton's kernel."""
    with torch.cuda.stream(side.stream.torch):
        triton_kernels.ping(
            side.word(FLAG), peer.word(FLAG), side.word(DONE), rounds=rounds, leader=leads
        )


def chase(pair: Pair, rounds: int) -> float:
    """Let the target follow a ring in the source's memory; return the seconds.

    Raises:
        WrongResult: it ends where it should not.
    """
    owner, reader = pair.source, pair.target
    clear(pair)
    ring = owner.flags[RING : RING + RING_WORDS]
    ring.copy_((torch.arange(RING_WORDS, device=ring.device) + 1) % RING_WORDS)
    pair.settle()
    reader.clock.start()
    reader.kernels.chase(
        owner.address(RING), reader.address(DONE), rounds=rounds, stream=reader.stream
    )
    seconds = reader.clock.stop()
    _expect(pair, "the end of a ring", int(reader.word(DONE).item()), rounds % RING_WORDS)
    return seconds


def swap(pair: Pair, rounds: int) -> float:
    """Let the target count in the source's memory by compare and swap; return the seconds.

    Raises:
        WrongResult: one of them found another number than it should.
    """
    owner, changer = pair.source, pair.target
    clear(pair)
    changer.clock.start()
    changer.kernels.swap(
        owner.address(FLAG), changer.address(DONE), rounds=rounds, stream=changer.stream
    )
    seconds = changer.clock.stop()
    _expect(pair, "swaps that found what they should", int(changer.word(DONE).item()), rounds)
    _expect(pair, "the number that was counted", int(owner.word(FLAG).item()), rounds)
    return seconds


def clear(pair: Pair) -> None:
    """Reset: all flags are 0, and nothing is under way."""
    for side in (pair.source, pair.target):
        side.flags.zero_()
    pair.settle()


def _us(work: Callable[[int], float], *, trips: int = 1) -> float:
    # Kernels are loaded before one of them waits for the other.
    work(0)
    seconds = statistics.median(work(ROUNDS) for _ in range(BATCHES))
    return round(seconds * 1e6 / (ROUNDS * trips), 3)


def _expect(pair: Pair, what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise WrongResult(f"{pair}: {what}: {found} where {wanted} is right")
