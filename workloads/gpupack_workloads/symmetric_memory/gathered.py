# SPDX-License-Identifier: Apache-2.0
"""C[M, N] = A[M, K] @ B[K, N]; every rank has a shard of A's rows, and its own B.

Tensor parallelism by sequence begins every block so. A has to be gathered; how much of that a
product hides is the question:

    nccl       all-gather by NCCL (gloo), then torch.matmul
    copies     a rank multiplies its own shard while the copy engine fetches the next one, and so
               on: a product for each shard
    kernel     one product that begins with its own shard; copies set a flag when a shard is there,
               and the kernel waits for it before it loads those rows (operators/gemm)
    torch      torch.ops.symm_mem.fused_all_gather_matmul, where it is there
    alone      torch.matmul with all of A there from the start: nothing could be faster by hiding

`copies` and `kernel` have A in symmetric memory, each rank's shard in its place, so that nothing
is copied within a rank; the others' rows are fetched from rank r + 1 on, then r + 2, so that no
rank is read by two at a time. There are two such buffers which take turns: a call begins with a
barrier, after which every shard is ready, and a rank that has come to the barrier of call c + 1 has
read all of call c; what was read there may be overwritten for c + 2. Torch's operator takes any
tensor, and copies the shard to symmetric memory.

Check: A and B are made again from their seeds, so that nothing that travelled is trusted, and
multiplied in 64 bits. An element may be off by what accumulating K products in 32 bits and rounding
once to the type explain (reference/gemm). What others have sent and what was computed is
overwritten before every turn, and the last turn's result is checked.
"""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist

from gpupack_kernels.operators.gemm.launch import multiply_arriving
from gpupack_kernels.operators.gemm.problem import Arrivals
from gpupack_workloads.collectives.methods import world
from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import BadArgument, WrongResult
from gpupack_workloads.reference.agreement import (
    ACCUMULATION_UNIT,
    RESULT_UNITS,
    SAFETY,
    SUBNORMAL_UNITS,
    Agreement,
    closest,
    furthest,
)
from gpupack_workloads.results import Scalar
from gpupack_workloads.seeds import generator_seed
from gpupack_workloads.symmetric_memory.one_sided import slowest, together
from gpupack_workloads.symmetric_memory.options import (
    COLUMNS,
    DEPTH,
    ROWS,
    SymmetricMemoryOptions,
)
from gpupack_workloads.symmetric_memory.shared_buffers import Host, SharedBuffer
from gpupack_workloads.timing import seconds_per_call

logger = logging.getLogger(__name__)

Row = dict[str, Scalar]

RIVAL, ALONE = "nccl", "alone"
OURS = ("copies", "kernel")
BUFFERS = 2
SIMULATED_ROWS, SIMULATED_DEPTH, SIMULATED_COLUMNS = (64, 192), 32, 96
# Rows of C that are checked at once: what that takes in 64 bits is a few GiB at the most.
CHECKED_ROWS = 2048
TURNS = {"cuda": 7, "cpu": 1}
WARM_UP = {"cuda": 3, "cpu": 1}
TURN_OPERATIONS = 4e12
MAX_REPEATS, MIN_REPEATS = 20, 4
HEAD_START_MS = 8


@dataclass(frozen=True)
class Problem:
    """A product and its shards.

    Attributes:
        rows: number of rows of all of A; a multiple of the ranks.
        depth: columns of A.
        columns: number of columns of this rank's B.
        dtype: type of all three matrices.
        rank: whose B it is, and where it is computed.
        seed: seed of A and all B.
    """

    rows: int
    depth: int
    columns: int
    dtype: torch.dtype
    rank: Rank
    seed: int

    @property
    def shard_rows(self) -> int:
        """Rows of a rank's shard."""
        return self.rows // self.rank.ranks

    @property
    def operations(self) -> float:
        """What a rank computes."""
        return 2.0 * self.rows * self.depth * self.columns

    def shard(self, rank: int) -> torch.Tensor:
        """Return a rank's rows of A."""
        return self._normal(2 * rank, self.shard_rows, self.depth)

    def weight(self) -> torch.Tensor:
        """Return the transpose of this rank's B, as linear layers keep it."""
        return self._normal(2 * self.rank.index + 1, self.columns, self.depth)

    def _normal(self, number: int, rows: int, columns: int) -> torch.Tensor:
        device = self.rank.device.torch
        chance = torch.Generator(device)
        chance.manual_seed(generator_seed(self.seed * 2 * self.rank.ranks + number))
        return torch.randn((rows, columns), generator=chance, device=device, dtype=self.dtype)


class Gathering(Protocol):
    """A way to compute C.

    Attributes:
        result: C, of the last call.
    """

    result: torch.Tensor

    def __call__(self) -> None:
        """Gather and multiply."""

    def spoil(self) -> None:
        """Overwrite what came from elsewhere, and C."""


class Gathered:
    """All-gather, then one product."""

    def __init__(self, problem: Problem, b: torch.Tensor) -> None:
        self._shard, self._b = problem.shard(problem.rank.index), b
        self._a = torch.empty_like(self._shard).repeat(problem.rank.ranks, 1)
        self.result = b.new_empty((problem.rows, problem.columns))

    def __call__(self) -> None:
        """Gather by the group's backend."""
        dist.all_gather_into_tensor(self._a, self._shard)
        torch.mm(self._a, self._b, out=self.result)

    def spoil(self) -> None:
        """Overwrite A and C."""
        self._a.fill_(torch.nan)
        self.result.fill_(torch.nan)


class Alone:
    """Product alone, with all of A there."""

    def __init__(self, problem: Problem, b: torch.Tensor) -> None:
        self._b = b
        self._a = torch.cat([problem.shard(rank) for rank in range(problem.rank.ranks)])
        self.result = b.new_empty((problem.rows, problem.columns))

    def __call__(self) -> None:
        """Multiply."""
        torch.mm(self._a, self._b, out=self.result)

    def spoil(self) -> None:
        """Overwrite C."""
        self.result.fill_(torch.nan)


class Fetched:
    """Ways that fetch others' shards out of their memory, during the product.

    Args:
        problem: which product.
        b: this rank's.
        host: where shards lie.
        buffers: for all of A, on every rank; shared by such ways, which must not run at a time.
    """

    def __init__(
        self, problem: Problem, b: torch.Tensor, host: Host, buffers: list[SharedBuffer]
    ) -> None:
        self._problem, self._b, self._buffers = problem, b, buffers
        self._side, self._calls = host.side(), 0
        self.result = b.new_empty((problem.rows, problem.columns))

    def spoil(self) -> None:
        """Overwrite C and the rows of others; others read our rows."""
        for buffer in self._buffers:
            for rank, shard in enumerate(self._shards(buffer.parts[self._problem.rank.index])):
                if rank != self._problem.rank.index:
                    shard.fill_(torch.nan)
        self.result.fill_(torch.nan)

    def _begin(self) -> SharedBuffer:
        """Wait until every rank's shard is ready; return the buffer whose turn it is."""
        buffer = self._buffers[self._calls % BUFFERS]
        self._calls += 1
        buffer.signals.barrier()
        self._side.begin()
        return buffer

    def _sources(self) -> Iterator[int]:
        """Return the other ranks in the order in which we fetch from them."""
        index, ranks = self._problem.rank.index, self._problem.rank.ranks
        return ((index + step) % ranks for step in range(1, ranks))

    def _fetch(self, buffer: SharedBuffer, source: int) -> Callable[[], object]:
        """Put the copy of a shard into the queue; return what waits for it."""
        mine = self._shards(buffer.parts[self._problem.rank.index])
        return self._side.copy(mine[source], self._shards(buffer.parts[source])[source])

    def _shards(self, whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shards: tuple[torch.Tensor, ...] = whole.split(self._problem.shard_rows)
        return shards


class Copies(Fetched):
    """A product for each shard."""

    def __call__(self) -> None:
        """Fetch all, multiply each as it comes."""
        buffer, own = self._begin(), self._problem.rank.index
        coming = {source: self._fetch(buffer, source) for source in self._sources()}
        shards, parts = self._shards(buffer.parts[own]), self._shards(self.result)
        torch.mm(shards[own], self._b, out=parts[own])
        for source, wait in coming.items():
            wait()
            torch.mm(shards[source], self._b, out=parts[source])
        self._side.end()


class OneKernel(Fetched):
    """One kernel that waits for flags."""

    def __init__(
        self, problem: Problem, b: torch.Tensor, host: Host, buffers: list[SharedBuffer]
    ) -> None:
        super().__init__(problem, b, host, buffers)
        ranks, own = problem.rank.ranks, problem.rank.index
        self._flags = torch.zeros(ranks, dtype=torch.int32, device=b.device)
        self._only_own = torch.arange(ranks, device=b.device).eq(own).to(torch.int32)
        self._arrivals = Arrivals(self._flags, problem.shard_rows, own)

    def __call__(self) -> None:
        """Fetch all, with flags, and multiply at the same time."""
        # Before the copies may begin: they set flags.
        self._flags.copy_(self._only_own)
        buffer, own = self._begin(), self._problem.rank.index
        for source in self._sources():
            self._fetch(buffer, source)
            self._side.mark(self._flags, source)
        multiply_arriving(buffer.parts[own], self._b, self.result, self._arrivals)
        self._side.end()


class TorchFused:
    """Torch's fused operator."""

    def __init__(self, problem: Problem, b: torch.Tensor) -> None:
        self._shard, self._b = problem.shard(problem.rank.index), b
        self.result = torch.empty(0, dtype=b.dtype, device=b.device)

    def __call__(self) -> None:
        """Call it; torch allocates a new C."""
        del self.result
        fused: Any = torch.ops.symm_mem.fused_all_gather_matmul
        # Asked for A, too, it never takes the way by multicast, which stays off.
        _, (self.result,) = fused(self._shard, [self._b], 0, world().group_name, return_A=True)

    def spoil(self) -> None:
        """Overwrite C; the next one gets its memory."""
        self.result.fill_(torch.nan)


def has_torch_fused() -> bool:
    """Return whether this torch has the operator."""
    import torch.distributed._symmetric_memory  # noqa: PLC0415  registers it

    return hasattr(torch.ops.symm_mem, "fused_all_gather_matmul")


def problems_of(options: SymmetricMemoryOptions, rank: Rank) -> list[Problem]:
    """Return the products, smallest first.

    Raises:
        BadArgument: something does not divide by the ranks, or rows are not whole 16 bytes.
    """
    simulated = rank.device.simulated
    rows = sorted(set(options.rows or (SIMULATED_ROWS if simulated else ROWS)))
    depth = options.depth or (SIMULATED_DEPTH if simulated else DEPTH)
    columns = options.columns or (SIMULATED_COLUMNS if simulated else COLUMNS)
    dtype = torch.float32 if simulated else getattr(torch, options.dtype)
    if options.columns is None:
        columns = max(rank.ranks, columns // rank.ranks * rank.ranks)
    if not options.rows:
        rows = [count // rank.ranks * rank.ranks for count in rows if count >= rank.ranks]
    for name, count in (*(("--rows", one) for one in rows), ("--columns", columns)):
        if count % rank.ranks:
            raise BadArgument(f"{name} {count} is no multiple of {rank.ranks} ranks")
    if depth * dtype.itemsize % 16:
        raise BadArgument(f"--depth {depth} makes rows that are no multiple of 16 bytes")
    return [
        Problem(count, depth, columns // rank.ranks, dtype, rank, options.seed) for count in rows
    ]


def needed_bytes(problems: list[Problem]) -> int:
    """Return how much memory the largest product takes, with what checks it."""
    largest = max(problems, key=lambda problem: problem.rows)
    element: int = largest.dtype.itemsize
    a, c = largest.rows * largest.depth, largest.rows * largest.columns
    b = largest.columns * largest.depth
    checked = 8 * CHECKED_ROWS * (2 * largest.depth + 6 * largest.columns) + 16 * b
    # A: two buffers, gathered by NCCL, whole, gathered by torch, and shards; C of five ways.
    return element * (6 * a + 5 * c + b) + checked


def measure(host: Host, problems: list[Problem]) -> tuple[list[Row], Agreement]:
    """Check and time every product in every way.

    Raises:
        WrongResult: an element is further off than rounding explains, on this rank or another.
    """
    rows, agreements = [], []
    largest, rank = problems[-1], problems[-1].rank
    buffers = [host.allocate((largest.rows, largest.depth), largest.dtype) for _ in range(BUFFERS)]
    for problem in problems:
        row, agreement = measure_one(problem, host, buffers)
        rows.append(row)
        agreements.append(agreement)
        if rank.index == 0:
            logger.info("%s", row)
    return rows, closest(agreements)


def measure_one(problem: Problem, host: Host, buffers: list[SharedBuffer]) -> tuple[Row, Agreement]:
    """Check every way, time them in turns, and check what the last turn left."""
    ways = ways_of(problem, host, buffers)
    found = []
    for name, way in ways.items():
        spoil(way, problem.rank)
        way()
        together(problem.rank.device.torch)
        found.append(checked(name, way, problem))
    seconds = timed(ways, problem)
    found += [checked(f"{name}, as it was timed", way, problem) for name, way in ways.items()]
    agreement = closest(found)
    return row_of(problem, seconds, agreement), agreement


def ways_of(problem: Problem, host: Host, buffers: list[SharedBuffer]) -> dict[str, Gathering]:
    """Return every way that is there; all ranks must call this together."""
    own = problem.rank.index
    b = problem.weight().T
    parts = [first_rows(buffer, problem.rows) for buffer in buffers]
    for buffer in parts:
        buffer.parts[own].split(problem.shard_rows)[own].copy_(problem.shard(own))
    ways: dict[str, Gathering] = {
        RIVAL: Gathered(problem, b),
        "copies": Copies(problem, b, host, parts),
        "kernel": OneKernel(problem, b, host, parts),
    }
    if not problem.rank.device.simulated and has_torch_fused():
        ways["torch"] = TorchFused(problem, b)
    return ways | {ALONE: Alone(problem, b)}


def first_rows(buffer: SharedBuffer, rows: int) -> SharedBuffer:
    """Return the beginning of a buffer."""
    return SharedBuffer([part[:rows] for part in buffer.parts], buffer.signals)


def spoil(way: Gathering, rank: Rank) -> None:
    """Overwrite what a way has left, while no rank is at work."""
    together(rank.device.torch)
    way.spoil()
    together(rank.device.torch)


def timed(ways: dict[str, Gathering], problem: Problem) -> dict[str, float]:
    """Return the seconds of a call by every way: medians of turns, of the slowest rank."""
    rank, kind = problem.rank, problem.rank.device.torch.type
    repeats = 1
    if kind == "cuda":
        wanted = round(TURN_OPERATIONS / problem.operations)
        repeats = max(MIN_REPEATS, min(MAX_REPEATS, wanted))
    own: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(TURNS[kind]):
        # Every other turn goes backwards, so that no rival always follows the same one.
        for name in list(ways)[:: -1 if number % 2 else 1]:
            spoil(ways[name], rank)
            own[name].append(
                seconds_per_call(
                    ways[name],
                    device=rank.device.torch,
                    repeats=repeats,
                    warm_up=WARM_UP[kind],
                    head_start_ms=HEAD_START_MS,
                )
            )
    together(rank.device.torch)
    return {name: slowest(times, rank) for name, times in own.items()}


def checked(name: str, way: Gathering, problem: Problem) -> Agreement:
    """Compare C with a product in 64 bits; all ranks must call this together.

    Raises:
        WrongResult: an element is further off than rounding explains, on this rank or another.
    """
    agreement = compare(way.result, problem)
    with all_or_none():
        if not agreement.holds:
            raise WrongResult(
                f"rank {problem.rank.index}: {name}: an element of the product of {problem.rows} x"
                f" {problem.depth} by {problem.depth} x {problem.columns} is wrong by"
                f" {agreement.error:.3e} where rounding explains {agreement.bound:.3e}"
            )
    return agreement


def compare(c: torch.Tensor, problem: Problem) -> Agreement:
    """Return which element of C comes closest to its bound, or exceeds it most.

    The bound: SAFETY sqrt(K) 2^-24 (|A| |B|) of the sum in 32 bits, and the type's rounding unit
    times the element (reference/gemm has the source).
    """
    name = str(problem.dtype).removeprefix("torch.")
    b = problem.weight().T.double()
    sizes = b.abs()
    unit = SAFETY * math.sqrt(problem.depth) * ACCUMULATION_UNIT
    found = []
    for rank in range(problem.rank.ranks):
        shard = problem.shard(rank)
        rows = c.split(problem.shard_rows)[rank]
        for a, part in zip(shard.split(CHECKED_ROWS), rows.split(CHECKED_ROWS), strict=True):
            exact = a.double() @ b
            bound = (a.double().abs() @ sizes).mul_(unit)
            bound += RESULT_UNITS[name] * exact.abs() + SUBNORMAL_UNITS[name]
            found.append(furthest(error=exact.sub_(part).abs_(), bound=bound))
    return closest(found)


def row_of(problem: Problem, seconds: dict[str, float], agreement: Agreement) -> Row:
    """Return a row of the result's table: times, and NCCL's over each."""
    row: Row = {
        "part": "matmul",
        "rows": problem.rows,
        "depth": problem.depth,
        "columns": problem.columns,
        "dtype": str(problem.dtype).removeprefix("torch."),
    }
    row |= {f"{name}_us": round(time * 1e6, 2) for name, time in seconds.items()}
    if not problem.rank.device.simulated:
        row |= {
            f"{name}_nccl_ratio": round(seconds[RIVAL] / time, 4)
            for name, time in seconds.items()
            if name != RIVAL
        }
    return row | {"error": agreement.error, "error_bound": agreement.bound}


def pays_from(rows: list[Row], way: str) -> int | None:
    """Return the fewest rows from which on a way is faster than NCCL at every size, if any."""
    found = None
    for row in sorted(rows, key=lambda row: int(row["rows"]), reverse=True):
        if float(row[f"{way}_nccl_ratio"]) <= 1:
            break
        found = int(row["rows"])
    return found
