# SPDX-License-Identifier: Apache-2.0
"""Puts and gets round a ring of ranks, against NCCL's send and receive.

Every rank puts to the next one, or gets from it, so that both directions of every link are busy:

    triton put     one kernel stores into the next rank's memory, signals, and waits for the signal
                   of the one before (kernels/peer)
    triton get     one kernel loads from the next rank's memory
    copy put       a copy by the copy engine into the next rank's memory, torch's signal and wait
    copy get       a copy by the copy engine out of it
    send-recv      NCCL (gloo) sends to the next and receives from the one before

A put has arrived when it ends. A get takes what is there: no rank says that it is ready, and none
that it was read.

Bytes depend on their place and rank. Every byte that arrived in the last timed batch is compared,
and MARGIN bytes behind it, which must be unchanged.
"""

import logging
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from gpupack_kernels.communication.peer.launch import PUT_PROGRAMS, Puts
from gpupack_kernels.communication.peer.launch import copy as copy_by_kernel
from gpupack_workloads.bandwidth import algorithm_gb_per_s
from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.p2p.copies import MISSING
from gpupack_workloads.p2p.pattern import count_wrong, write
from gpupack_workloads.results import Scalar
from gpupack_workloads.symmetric_memory.options import SEND_RECV, SMALLEST_BYTES
from gpupack_workloads.symmetric_memory.shared_buffers import Host, SharedBuffer
from gpupack_workloads.timing import seconds_per_call

logger = logging.getLogger(__name__)

Row = dict[str, Scalar]

WORD = 8
MARGIN = 512
SIZE_STEP = 8
BATCHES = {"cuda": 7, "cpu": 3}
# A batch lasts long enough for the ranks' unequal starts not to count.
BATCH_BYTES = 2**31
MAX_REPEATS = {"cuda": 40, "cpu": 2}
MIN_REPEATS = 3
WARM_UP = 2
# While a GPU waits so long, everything of a batch is launched: what is timed is the GPU's time.
HEAD_START_MS = 6


@dataclass(frozen=True)
class Way:
    """A way to transfer bytes from another rank's memory to ours.

    Attributes:
        start: moves so many words.
        arrived: where they come to lie.
        source: the rank whose they are.
        check: raises WrongResult if it has noticed that something did not come.
    """

    start: Callable[[int], object]
    arrived: torch.Tensor
    source: int
    check: Callable[[], object] = lambda: None


def sizes(largest: int) -> list[int]:
    """Return sizes in bytes: times 8 from 8 on, and the largest of whole words."""
    found, size, last = [], SMALLEST_BYTES, largest // WORD * WORD
    while size < last:
        found.append(size)
        size *= SIZE_STEP
    return [*found, last]


def needed_bytes(largest: int) -> int:
    """Return how much memory the puts and gets of a size take, with what checks them."""
    pieces = 6 * 4 * min(largest, 2**26)
    return 4 * (largest + MARGIN) + pieces


def measure(host: Host, rank: Rank, largest: int, seed: int) -> list[Row]:
    """Time and check every way at every size.

    Raises:
        WrongResult: a byte is wrong, on this rank or another.
    """
    ways = ways_of(host, rank, largest, seed)
    rows = []
    for size in sizes(largest):
        for name, way in ways.items():
            rows.append(measure_one(name, way, size, rank, seed))
            if rank.index == 0:
                logger.info("%s", rows[-1])
    return rows


def ways_of(host: Host, rank: Rank, largest: int, seed: int) -> dict[str, Way]:
    """Return all ways, for up to so many bytes; all ranks must call this together."""
    device = rank.device.torch
    words = (largest + MARGIN) // WORD
    after, before = (rank.index + 1) % rank.ranks, (rank.index - 1) % rank.ranks
    outbox, inbox = (host.allocate((words,), torch.int64) for _ in range(2))
    signals = host.allocate((PUT_PROGRAMS,), torch.int32)
    local = torch.zeros(words, dtype=torch.int64, device=device)
    mine = outbox.parts[rank.index]
    write(mine.view(torch.uint8), seed_of(seed, rank.index))
    puts = Puts(signals.parts[after], signals.parts[rank.index])

    def triton_put(count: int) -> None:
        puts.put(inbox.parts[after][:count], mine[:count])

    def triton_get(count: int) -> None:
        copy_by_kernel(local[:count], outbox.parts[after][:count])

    def copy_put(count: int) -> None:
        inbox.parts[after][:count].copy_(mine[:count], non_blocking=True)
        signalled(inbox, after, before)

    def copy_get(count: int) -> None:
        local[:count].copy_(outbox.parts[after][:count], non_blocking=True)

    arrived = inbox.parts[rank.index]
    return {
        "triton put": Way(triton_put, arrived, before, partial(require_signals, puts, rank.index)),
        "triton get": Way(triton_get, local, after),
        "copy put": Way(copy_put, arrived, before),
        "copy get": Way(copy_get, local, after),
        SEND_RECV: Way(partial(send_and_receive, mine, local, rank), local, before),
    }


def signalled(buffer: SharedBuffer, after: int, before: int) -> None:
    """Signal the next rank that our data are there, and wait for the signal of the one before."""
    buffer.signals.put_signal(after)
    buffer.signals.wait_signal(before)


def send_and_receive(mine: torch.Tensor, local: torch.Tensor, rank: Rank, count: int) -> None:
    """Send to the next and receive from the one before; a rank alone copies."""
    if rank.ranks == 1:
        local[:count].copy_(mine[:count])
        return
    both = [
        dist.P2POp(dist.isend, mine[:count], (rank.index + 1) % rank.ranks),
        dist.P2POp(dist.irecv, local[:count], (rank.index - 1) % rank.ranks),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def require_signals(puts: Puts, rank: int) -> None:
    """Make sure that every signal has come.

    Raises:
        WrongResult: one has not.
    """
    if missed := puts.missed():
        raise WrongResult(f"rank {rank}: {missed} signals of puts did not come")


def seed_of(seed: int, rank: int) -> int:
    """Return the seed of a rank's bytes."""
    return seed + rank


def measure_one(name: str, way: Way, size: int, rank: Rank, seed: int) -> Row:
    """Time one way at one size, and check what the last batch left."""
    device, count = rank.device.torch, size // WORD
    kind = device.type
    repeats = max(MIN_REPEATS, min(MAX_REPEATS[kind], BATCH_BYTES // size))
    own = []
    for _ in range(BATCHES[kind]):
        way.arrived.view(torch.uint8)[: size + MARGIN].fill_(MISSING)
        together(device)
        own.append(
            seconds_per_call(
                partial(way.start, count),
                device=device,
                repeats=repeats,
                warm_up=WARM_UP,
                head_start_ms=HEAD_START_MS,
            )
        )
    together(device)
    check(name, way, size, rank=rank, seed=seed)
    seconds = slowest(own, rank)
    return {
        "part": "one-sided",
        "way": name,
        "size_bytes": size,
        "us": round(seconds * 1e6, 3),
        "gb_per_s": round(algorithm_gb_per_s(size_bytes=size, seconds=seconds), 6),
    }


def check(name: str, way: Way, size: int, *, rank: Rank, seed: int) -> None:
    """Compare every byte that arrived, and those behind; all ranks must call this together.

    Raises:
        WrongResult: one is wrong, on this rank or another.
    """
    arrived = way.arrived.view(torch.uint8)
    wrong = count_wrong(arrived[:size], seed_of(seed, way.source))
    behind = int((arrived[size : size + MARGIN] != MISSING).sum().item())
    with all_or_none():
        way.check()
        if wrong or behind:
            raise WrongResult(
                f"rank {rank.index}: {name} of {size} bytes from rank {way.source}: {wrong} bytes"
                f" that arrived are wrong, {behind} behind them were written"
            )


def together(device: torch.device) -> None:
    """Wait until every rank has come here and its device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    dist.barrier()


def slowest(own: Sequence[float], rank: Rank) -> float:
    """Return the median over batches of the slowest rank's seconds; all ranks call it together."""
    mine = torch.tensor(own, dtype=torch.float64, device=rank.device.torch)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return float(statistics.median(mine.tolist()))
