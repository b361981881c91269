# SPDX-License-Identifier: Apache-2.0
"""Times every way between two GPUs, in turns, and checks in each turn what was timed.

CUDA events stand around all copies of a turn, on the stream on which the way ends. Before them the
stream waits for some milliseconds, in which everything is launched: small copies are timed without
what Python takes to launch them. In both directions at a time, the other stream begins after the
first event and ends before the last.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

import torch

from gpupack_workloads.p2p_cpp.checks import RAGGED_BYTES, CopyBuffers, check_edges, nothing
from gpupack_workloads.p2p_cpp.plan import gb_per_s, repeats_of, sizes_of
from gpupack_workloads.p2p_cpp.runtime import Event, Stream
from gpupack_workloads.p2p_cpp.sides import Pair, Side
from gpupack_workloads.p2p_cpp.staging import Staging
from gpupack_workloads.p2p_cpp.ways import BOTH, Way, through_host, ways_of
from gpupack_workloads.results import Scalar
from gpupack_workloads.timing import CYCLES_PER_MS, medians_in_turns

ROUNDS = 5
WARM_UP = 2
# More than the launches of a turn take.
HEAD_START_MS = 4.0


@dataclass(frozen=True)
class Work:
    """Work to time.

    Attributes:
        name: in results.
        side: side whose stream is timed.
        lanes: what each run copies.
        run: begins to copy all of it.
        spoil: overwrites intermediate buffers.
        fork: lets the other stream begin.
        join: waits for it.
    """

    name: str
    side: Side
    lanes: tuple[CopyBuffers, ...]
    run: Callable[[], object]
    spoil: Callable[[], None] = nothing
    fork: Callable[[], None] = nothing
    join: Callable[[], None] = nothing


class Together:
    """Two streams that begin and end together.

    Args:
        stack: gives the events back when it is closed.
        one: the stream that is timed.
        other: the other one.
    """

    def __init__(self, stack: ExitStack, one: Stream, other: Stream) -> None:
        self._one, self._other = one, other
        self._begun = stack.enter_context(closing(Event(one.device)))
        self._ended = stack.enter_context(closing(Event(other.device)))

    def fork(self) -> None:
        """Let the other begin when the one has come here."""
        self._begun.record(self._one)
        self._other.wait(self._begun)

    def join(self) -> None:
        """Let the one wait for what the other has."""
        self._ended.record(self._other)
        self._one.wait(self._ended)


def measure(pair: Pair, largest: int, seed: int) -> tuple[list[dict[str, Scalar]], int]:
    """Check every way at its edges, then time and check all of them at every size.

    Returns:
        A row for each size, and how many bytes were checked.

    Raises:
        WrongResult: a byte is wrong.
    """
    with ExitStack() as stack:
        most = max(largest, *RAGGED_BYTES)
        staging = Staging(stack, pair.source.stream, pair.target.stream, most)
        there = ways_of(pair.source, pair.target, direct=pair.direct)
        host = through_host(pair.target, staging)
        there[host.name] = host
        back = {} if pair.same else ways_of(pair.target, pair.source, direct=pair.direct)
        checked = sum(check_way(pair, way, seed) for way in there.values() if not way.words)
        rows = []
        for size in sizes_of(largest):
            works = works_of(stack, pair, there, back, size=size)
            for lane in {id(lane): lane for work in works for lane in work.lanes}.values():
                lane.fill(seed)
            rows.append(row_of(pair, works, size, seed))
            checked += ROUNDS * size * sum(len(work.lanes) for work in works)
        return rows, checked


def check_way(pair: Pair, way: Way, seed: int) -> int:
    """Check ragged copies of a way; return how many bytes.

    Raises:
        WrongResult: a byte is wrong.
    """

    def copy(target: torch.Tensor, source: torch.Tensor) -> None:
        way.spoil()
        way.copy(target, source)

    return check_edges(
        f"{pair} by {way.name}",
        copy,
        (pair.source.out, pair.target.into),
        seed=seed,
        settle=pair.settle,
    )


def works_of(
    stack: ExitStack,
    pair: Pair,
    there: Mapping[str, Way],
    back: Mapping[str, Way],
    *,
    size: int,
) -> list[Work]:
    """Return every way in one direction, and those that go in both."""
    forward = CopyBuffers.within(pair.source.out, pair.target.into, size)
    works = [
        Work(
            name,
            way.side,
            (forward,),
            partial(way.copy, forward.target, forward.source),
            way.spoil,
        )
        for name, way in there.items()
    ]
    backward = CopyBuffers.within(pair.target.out, pair.source.into, size)
    for name in BOTH:
        if name in there and name in back:
            one, other = there[name], back[name]
            streams = Together(stack, one.side.stream, other.side.stream)
            works.append(
                Work(
                    f"{name}_both",
                    one.side,
                    (forward, backward),
                    partial(_run_both, one, other, (forward, backward)),
                    fork=streams.fork,
                    join=streams.join,
                )
            )
    return works


def row_of(pair: Pair, works: list[Work], size: int, seed: int) -> dict[str, Scalar]:
    """Return the bandwidth of each, in turns."""
    turns = {work.name: partial(turn, pair, work, repeats_of(size), seed) for work in works}
    seconds = medians_in_turns(turns, rounds=ROUNDS)
    speeds: dict[str, Scalar] = {
        f"{work.name}_gb_per_s": gb_per_s(size, len(work.lanes), seconds[work.name])
        for work in works
    }
    return {"source": pair.source.device, "target": pair.target.device, "bytes": size} | speeds


def turn(pair: Pair, work: Work, repeats: int, seed: int) -> float:
    """Return the seconds of one run, whose result is right.

    Raises:
        WrongResult: a byte is wrong.
        Refused: something has failed on a GPU.
    """
    for _ in range(WARM_UP):
        work.run()
    pair.settle()
    for lane in work.lanes:
        lane.spoil()
    work.spoil()
    pair.settle()
    head_start(work.side)
    work.side.clock.start()
    work.fork()
    for _ in range(repeats):
        work.run()
    work.join()
    seconds = work.side.clock.stop() / repeats
    pair.settle()
    for lane in work.lanes:
        lane.check(seed, doing=f"{pair} by {work.name}, as it was timed")
    return seconds


def head_start(side: Side) -> None:
    """Let a stream wait while what comes behind is launched."""
    with torch.cuda.stream(side.stream.torch):
        torch.cuda._sleep(int(HEAD_START_MS * CYCLES_PER_MS))  # noqa: SLF001  there is no other


def _run_both(one: Way, other: Way, lanes: tuple[CopyBuffers, CopyBuffers]) -> None:
    for way, lane in zip((one, other), lanes, strict=True):
        way.copy(lane.target, lane.source)
