# SPDX-License-Identifier: Apache-2.0
"""Measures the time of work on a device.

On a GPU one pair of CUDA events encloses all repetitions, after a warm-up: launch gaps are
hidden as in real use, and no cache is flushed, because matrices and buffers of the default sizes do
not fit into it anyway. Short work whose launches take longer than itself is launched while the GPU
waits.

Rivals are timed in turns, and each turn has its own warm-up: what one of them does to the chip's
power, clocks and caches affects the next, and the one after an easy rival would be faster.
"""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch

WARM_UP = 5
# For clocks up to 2 GHz: a GPU waits at least as long as requested.
CYCLES_PER_MS = 2_000_000

Rival = TypeVar("Rival", bound=Hashable)


class LatestResult:
    """Work whose latest result is kept, so that what was timed can be checked.

    The result is freed before the next one is made, which takes the same memory.

    Args:
        work: makes a result, a tensor or a tuple of them; done once here.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.result: Any = work()

    def __call__(self) -> None:
        """Make a new result."""
        del self.result
        self.result = self._work()

    def spoil(self) -> None:
        """Overwrite the result: the next one takes its memory, and must not look right by that."""
        left = self.result
        for tensor in (left,) if isinstance(left, torch.Tensor) else left:
            tensor.fill_(torch.nan)


def seconds_per_call(
    work: Callable[[], object],
    *,
    device: torch.device,
    repeats: int,
    warm_up: int = WARM_UP,
    head_start_ms: float = 0,
) -> float:
    """Return the mean time of one call.

    Args:
        work: what is called.
        device: where it computes.
        repeats: calls that are timed at once.
        warm_up: calls before.
        head_start_ms: how long a GPU waits before what is timed, while that is launched.
    """
    for _ in range(warm_up):
        work()
    if device.type != "cuda":
        return _cpu_seconds(work, repeats) / repeats
    if head_start_ms:
        torch.cuda._sleep(int(head_start_ms * CYCLES_PER_MS))  # noqa: SLF001  there is no other
    return _gpu_seconds(work, repeats) / repeats


def seconds_in_turns(
    works: Mapping[str, Callable[[], object]],
    *,
    device: torch.device,
    repeats: int,
    rounds: int,
    warm_up: int = WARM_UP,
    head_start_ms: float = 0,
) -> dict[str, float]:
    """Return each rival's time of one call, over rounds in which all take their turn."""
    turns = {
        name: partial(
            seconds_per_call,
            work,
            device=device,
            repeats=repeats,
            warm_up=warm_up,
            head_start_ms=head_start_ms,
        )
        for name, work in works.items()
    }
    return medians_in_turns(turns, rounds=rounds)


def medians_in_turns(
    turns: Mapping[Rival, Callable[[], float]], *, rounds: int
) -> dict[Rival, float]:
    """Return the median of what each rival's turns took; a turn warms up and is timed."""
    times: dict[Rival, list[float]] = {rival: [] for rival in turns}
    for number in range(rounds):
        # Every other round goes backwards, so that no rival always follows the same one.
        for rival in list(turns)[:: -1 if number % 2 else 1]:
            times[rival].append(turns[rival]())
    return {rival: statistics.median(seconds) for rival, seconds in times.items()}


def _gpu_seconds(work: Callable[[], object], repeats: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    # Not synchronized before: while the warm-up goes on, the first calls that count are launched.
    # After a pause the GPU would wait for them, longer where Python launches than a library.
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1000


def _cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return time.perf_counter() - start
