# SPDX-License-Identifier: Apache-2.0
"""Times one operation at one size, then checks the results of the timed calls.

A size that does not divide into whole elements for every rank is rounded up, and the row says what
was moved.

Calls are timed in batches. A batch takes what its slowest rank needed, and the median of batches is
kept: a rank that the host stops for some milliseconds, as virtual machines do, holds up all others,
and would be a third of a mean.
"""

import logging
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from gpupack_workloads.bandwidth import algorithm_gb_per_s, bus_gb_per_s
from gpupack_workloads.collectives.operation import Operation
from gpupack_workloads.collectives.rank_data import ELEMENT_BYTES, PIECE, RankData
from gpupack_workloads.collectives.series import Call, Series
from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.results import Scalar
from gpupack_workloads.timing import seconds_per_call

logger = logging.getLogger(__name__)

BATCHES = {"cuda": 7, "cpu": 3}
SAYS_UNSERVED = (
    "nvalid scalar type",
    "nsupported",
    "not support",
    "nvalid data type",
    "annot use",
    "can't be cast",
)
"""Parts of what gloo, NCCL and torch say of a type or a reduction that a backend has not."""
WARM_UP = {"cuda": 5, "cpu": 1}
# A batch on GPUs lasts long enough for the ranks' unequal starts not to count.
BATCH_BYTES = 2**29
MAX_REPEATS = 100
MIN_REPEATS = 3
# Out of place: to send and to receive.
MIN_BUFFERS = 2
# Memory that filling and checking need in addition.
PIECES = 6


@dataclass(frozen=True)
class Calls:
    """Numbers of calls; None: defaults for device and size.

    Attributes:
        iterations: number of calls of a batch.
        warmup: before the first.
    """

    iterations: int | None = None
    warmup: int | None = None


USUAL = Calls()


@dataclass(frozen=True)
class Times:
    """Seconds per call, of all ranks.

    Attributes:
        seconds: seconds of the slowest rank in each batch, the median batch.
        ranks: seconds of each rank, its median batch.
    """

    seconds: float
    ranks: list[float]


@dataclass(frozen=True)
class Measurement:
    """Time of one operation at one size: the slowest rank's mean in the median batch.

    Attributes:
        operation: which.
        in_place: whether it wrote where it read.
        size_bytes: as nccl-tests count the operation's size.
        seconds: per call.
        bus_gb_per_s: traffic per link.
        ranks_seconds: seconds of each rank, in their order.
        tolerance: by how much of itself an element was let be wrong.
    """

    operation: str
    in_place: bool
    size_bytes: int
    seconds: float
    bus_gb_per_s: float
    ranks_seconds: list[float]
    tolerance: float = 0.0

    def row(self) -> dict[str, Scalar]:
        """Return a row of the result's table."""
        algorithm = algorithm_gb_per_s(size_bytes=self.size_bytes, seconds=self.seconds)
        return {
            "operation": self.operation,
            "in_place": self.in_place,
            "size_bytes": self.size_bytes,
            "us": round(self.seconds * 1e6, 2),
            "algorithm_gb_per_s": round(algorithm, 6),
            "bus_gb_per_s": round(self.bus_gb_per_s, 6),
            "rank_min_us": round(min(self.ranks_seconds) * 1e6, 2),
            "rank_avg_us": round(statistics.mean(self.ranks_seconds) * 1e6, 2),
            "rank_max_us": round(max(self.ranks_seconds) * 1e6, 2),
        }


def measure(
    operation: Operation, size: int, rank_data: RankData, *, in_place: bool, often: Calls = USUAL
) -> Measurement:
    """Time one operation, and check every result of the last batch.

    Args:
        operation: which.
        size: size of the buffer in bytes.
        rank_data: ours.
        in_place: whether to write where it reads.
        often: how many calls.

    Raises:
        WrongResult: an element that arrived here is wrong.
    """
    element = rank_data.dtype.itemsize
    elements = elements_of(
        size, ranks=rank_data.ranks, shared=operation.shared, element_bytes=element
    )
    repeats = often.iterations or repeats_for(size, rank_data.device)
    series = series_of(operation, elements, rank_data, in_place=in_place, repeats=repeats)
    times = times_of(
        series.start, rank_data, repeats=repeats, ready=series.fill, warmup=often.warmup
    )
    series.check()
    moved, seconds = elements * element, times.seconds
    return Measurement(
        operation=operation.name,
        in_place=in_place,
        size_bytes=moved,
        seconds=seconds,
        bus_gb_per_s=bus_gb_per_s(
            size_bytes=moved, seconds=seconds, crossings=operation.crossings(rank_data.ranks)
        ),
        ranks_seconds=times.ranks,
        tolerance=rank_data.tolerance,
    )


def require_served(operation: Operation, rank_data: RankData) -> None:
    """Make sure that the backend has an operation for a type and a reduction, by one call.

    All ranks must call this together. One may fail where the others do not: the root alone divides
    for gloo's mean.

    Raises:
        BadArgument: it has not.
    """
    (in_place, *_) = operation.in_place
    elements = elements_of(1, ranks=rank_data.ranks, shared=operation.shared)
    series = series_of(operation, elements, rank_data, in_place=in_place, repeats=1)
    series.fill()
    with all_or_none():
        try:
            series.start()
        except (RuntimeError, ValueError) as error:
            if not any(words in str(error) for words in SAYS_UNSERVED):
                raise
            raise BadArgument(
                f"{dist.get_backend()} has no {operation.name} of {rank_data.dtype} by"
                f" {rank_data.reduce_op}: {str(error).splitlines()[0]}"
            ) from error


def series_of(
    operation: Operation, elements: int, rank_data: RankData, *, in_place: bool, repeats: int
) -> Series:
    """Return the calls of a batch."""
    buffers = [
        operation.buffers(elements, rank_data, in_place=in_place)
        for _ in range(repeats if in_place else 1)
    ]
    calls = [
        Call(
            start=partial(operation.start, own, rank_data),
            fill=partial(own.fill, rank_data),
            count_wrong=partial(operation.count_wrong, own, rank_data),
            elements=own.receive.numel(),
        )
        for own in buffers
    ]
    return Series(operation.name, calls, rank=rank_data.rank)


def elements_of(size: int, *, ranks: int, shared: bool, element_bytes: int = ELEMENT_BYTES) -> int:
    """Return how many elements a size means: whole ones, for every rank as many."""
    unit = ranks if shared else 1
    return max(1, math.ceil(size / (element_bytes * unit))) * unit


def repeats_for(size: int, device: torch.device) -> int:
    """Return how many calls make a batch."""
    if device.type == "cpu":
        return 1
    return max(MIN_REPEATS, min(MAX_REPEATS, BATCH_BYTES // size))


def needed_bytes(
    largest: int,
    device: torch.device,
    *,
    element_bytes: int = ELEMENT_BYTES,
    iterations: int | None = None,
) -> int:
    """Return how much memory the buffers of a size take, with what fills and checks them."""
    buffers = max(MIN_BUFFERS, iterations or repeats_for(largest, device))
    # Data are worked out in 32 bits, or in the type's own if they are more.
    piece = min(PIECE, largest // element_bytes) * max(ELEMENT_BYTES, element_bytes)
    return buffers * largest + PIECES * piece


def median_seconds(
    work: Callable[[], object], rank_data: RankData, *, repeats: int, ready: Callable[[], object]
) -> float:
    """Return the median over batches of the slowest rank's mean.

    Args:
        work: one call.
        rank_data: ours.
        repeats: calls of a batch.
        ready: makes a batch's buffers ready; it is not timed.
    """
    return times_of(work, rank_data, repeats=repeats, ready=ready).seconds


def times_of(
    work: Callable[[], object],
    rank_data: RankData,
    *,
    repeats: int,
    ready: Callable[[], object],
    warmup: int | None = None,
) -> Times:
    """Return what calls took, of all ranks; the arguments are `median_seconds`'s.

    `warmup` is how many calls come before; None takes what suits the device.
    """
    kind = rank_data.device.type
    for _ in range(WARM_UP[kind] if warmup is None else warmup):
        work()
    own = [batch_seconds(work, rank_data, repeats, ready) for _ in range(BATCHES[kind])]
    mine = torch.tensor(own, dtype=torch.float64, device=rank_data.device)
    everyones = torch.empty(rank_data.ranks * len(own), dtype=mine.dtype, device=mine.device)
    dist.all_gather_into_tensor(everyones, mine)
    by_rank = everyones.view(rank_data.ranks, len(own)).tolist()
    return Times(
        seconds=float(statistics.median(map(max, zip(*by_rank, strict=True)))),
        ranks=[float(statistics.median(batches)) for batches in by_rank],
    )


def batch_seconds(
    work: Callable[[], object], rank_data: RankData, repeats: int, ready: Callable[[], object]
) -> float:
    """Return this rank's mean of one batch."""
    ready()
    # Else the rank that is ready first would time how long it waits for the last.
    dist.barrier()
    return seconds_per_call(work, device=rank_data.device, repeats=repeats, warm_up=0)


def sizes(smallest: int, largest: int) -> list[int]:
    """Return buffer sizes in bytes, doubling from the smallest up to the largest."""
    doublings = (largest // smallest).bit_length()
    return [smallest << power for power in range(doublings)]
