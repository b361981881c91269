# SPDX-License-Identifier: Apache-2.0
"""Sends messages around a ring, times them, and checks their contents.

`latency_us` is a hop of a token that goes round while all other ranks wait. For a bandwidth all
ranks send to the right and receive from the left at once; it is what one rank sends per second.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.mpi.memory_check import Need
from gpupack_workloads.mpi.world import World, forget_staging

ROUNDS = 20
WARM_UP = 3
MODULUS = 251
"""A prime, so that a message that is shifted by a power of two of bytes is another one."""


@dataclass(frozen=True)
class Shift:
    """One size of message, sent by all ranks at once."""

    size_bytes: int
    seconds: float

    @property
    def gb_per_s(self) -> float:
        """What one rank sends per second."""
        return self.size_bytes / self.seconds / 1e9


def sizes(smallest: int, largest: int) -> Sequence[int]:
    """Return sizes in bytes, each eight times the one before; the largest is the last."""
    found = [smallest]
    while found[-1] * 8 < largest:
        found.append(found[-1] * 8)
    return found if found[-1] == largest else [*found, largest]


def need_of(largest_bytes: int) -> Need:
    """Return what `shifts` and the sums take for messages of this size.

    For each byte of a pattern there are three numbers of 64 bits at a time, and two messages. The
    sums need half of it. The host's is pinned memory for two messages.
    """
    return Need(device=(3 * 8 + 2) * largest_bytes, host=2 * largest_bytes)


def shifts(world: World, largest_bytes: int) -> Iterator[Shift]:
    """Time and check every size.

    Raises:
        WrongResult: a message is not what the left neighbour has sent.
    """
    right, left = (world.index + 1) % world.ranks, (world.index - 1) % world.ranks
    for size in sizes(8, largest_bytes):
        out, into = pattern(size, world.index, world), pattern(size, world.index, world)
        expected = pattern(size, left, world)
        for _ in range(WARM_UP):
            world.exchange(out, into, dest=right, source=left)
        into.zero_()
        world.comm.Barrier()
        start = time.perf_counter()
        for _ in range(ROUNDS):
            world.exchange(out, into, dest=right, source=left)
        seconds = world.slowest((time.perf_counter() - start) / ROUNDS)
        if not torch.equal(into, expected):
            wrong = int((into != expected).sum())
            raise WrongResult(f"{wrong} of {size} bytes from rank {left} are not what it has sent")
        forget_staging()
        yield Shift(size, seconds)


def hop_seconds(world: World) -> float:
    """Return the time of one hop of a token of 8 bytes; of a rank that is alone 0.

    Raises:
        WrongResult: the token has not met every rank.
    """
    if world.ranks == 1:
        return 0.0
    token = torch.zeros(1, dtype=torch.int64, device=world.device.torch)
    for _ in range(WARM_UP):
        _pass_round(world, token)
    token.zero_()
    world.comm.Barrier()
    start = time.perf_counter()
    for _ in range(ROUNDS):
        _pass_round(world, token)
    seconds = time.perf_counter() - start
    hops = ROUNDS * world.ranks
    if world.index == 0 and int(token) != hops:
        raise WrongResult(f"the token has met {int(token)} ranks on {hops} hops")
    return world.slowest(seconds) / hops


def _pass_round(world: World, token: torch.Tensor) -> None:
    """Send a token round from rank 0; every rank adds one before passing it on."""
    right, left = (world.index + 1) % world.ranks, (world.index - 1) % world.ranks
    if world.index == 0:
        token += 1
        world.comm.Send(world.message(token), right)
    received = world.message(token, filled=False)
    world.comm.Recv(received, left)
    world.unpack(received, token)
    if world.index != 0:
        token += 1
        world.comm.Send(world.message(token), right)


def pattern(size_bytes: int, rank: int, world: World) -> torch.Tensor:
    """Return the message of a rank: bytes that identify the sender and the position."""
    places = torch.arange(size_bytes, device=world.device.torch)
    return ((places + 17 * rank) % MODULUS).to(torch.uint8)
