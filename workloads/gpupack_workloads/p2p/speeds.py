# SPDX-License-Identifier: Apache-2.0
"""Times every way between two GPUs.

Bandwidth is that of copies out of the owner's memory by the copy engines, of the reader's own loads
and stores, and of the way by the host; what each of them copied is compared afterwards.
"""

from collections.abc import Callable
from functools import partial

import torch

from gpupack_kernels.communication.peer.launch import copy
from gpupack_workloads.p2p.copies import Copy, checked_seconds
from gpupack_workloads.p2p.latency import BATCHES, latency
from gpupack_workloads.p2p.pair import Pair
from gpupack_workloads.p2p.through_host import Staging
from gpupack_workloads.results import Scalar
from gpupack_workloads.timing import seconds_in_turns

GB = 1e9
REPEATS = 3
SMALL_REPEATS = 40


def measure(pair: Pair, size: int, seed: int) -> dict[str, Scalar]:
    """Time every way between the two.

    Raises:
        WrongResult: a byte came wrongly, or a number never.
    """
    here, there = (words_of(size, side) for side in (pair.here, pair.there))
    staging = Staging(pair.here, pair.there, size)
    speed = partial(gb_per_s, pair, seed=seed)
    row: dict[str, Scalar] = {}
    if pair.accessible:
        row["copy_gb_per_s"] = speed("by the copy engine", by_engine, here, there)
        row["kernel_read_gb_per_s"] = speed("by loads", copy, here, there)
        row["kernel_write_gb_per_s"] = speed("by stores", copy, there, here)
        row["latency_us"] = round(latency(pair) * 1e6, 3)
        row["small_copy_us"] = round(small_copy(pair, seed) * 1e6, 2)
    row["host_gb_per_s"] = speed("by the host", staging.copy, here, there)
    return row


def words_of(size: int, side: torch.device) -> torch.Tensor:
    """Return a buffer of whole words, as many as the size has."""
    return torch.zeros(max(1, size // 8), dtype=torch.int64, device=side)


def by_engine(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy as torch does, by a copy engine."""
    target.copy_(source, non_blocking=True)


def gb_per_s(
    pair: Pair, way: str, work: Copy, target: torch.Tensor, source: torch.Tensor, *, seed: int
) -> float:
    """Return the bandwidth of a way."""
    size: int = source.nbytes
    taken = checked_seconds(
        *(work, target, source),
        seed=seed,
        clock=partial(seconds, pair, repeats=REPEATS),
        doing=f"{pair} {way}",
    )
    return round(size / taken / GB, 2)


def small_copy(pair: Pair, seed: int) -> float:
    """Return the seconds of a copy of 8 bytes, called from Python."""
    return checked_seconds(
        *(by_engine, words_of(8, pair.here), words_of(8, pair.there)),
        seed=seed,
        clock=partial(seconds, pair, repeats=SMALL_REPEATS),
        doing=f"{pair} by a small copy",
    )


def seconds(pair: Pair, work: Callable[[], object], *, repeats: int) -> float:
    """Return the time of one call on the reader's stream, once the owner has nothing to do."""
    torch.cuda.synchronize(pair.there)
    with torch.cuda.device(pair.here):
        times = seconds_in_turns(
            {"work": work}, device=pair.here, repeats=repeats, rounds=BATCHES, warm_up=2
        )
    return times["work"]
