# SPDX-License-Identifier: Apache-2.0
"""Times work on a device.

On a GPU one pair of CUDA events stands around all repetitions, after a warm-up: launch gaps are
hidden as in real use, and no cache is flushed, because matrices and buffers of the default sizes do
not fit into it anyway.

Rivals are timed in turns, and each turn warms up anew: what one of them does to the chip's power,
clocks and caches meets the next, and whoever follows an easy rival would be faster for a while.
"""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch

WARM_UP = 5

Rival = TypeVar("Rival", bound=Hashable)


class Kept:
    """Work whose latest result stays, so that what was timed can be checked.

    It goes before the next one is made: that takes the same memory, and none is held beside it.

    Args:
        work: makes a result, a tensor or a tuple of them; done once here.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.result: Any = work()

    def __call__(self) -> None:
        """Make the result anew."""
        del self.result
        self.result = self._work()

    def spoil(self) -> None:
        """Overwrite the result: the next one takes its memory, and must not look right by that."""
        left = self.result
        for tensor in (left,) if isinstance(left, torch.Tensor) else left:
            tensor.fill_(torch.nan)


def seconds_per_call(
    work: Callable[[], object], *, device: torch.device, repeats: int, warm_up: int = WARM_UP
) -> float:
    """Return the mean time of one call."""
    for _ in range(warm_up):
        work()
    total = _gpu_seconds if device.type == "cuda" else _cpu_seconds
    return total(work, repeats) / repeats


def seconds_in_turns(
    works: Mapping[str, Callable[[], object]],
    *,
    device: torch.device,
    repeats: int,
    rounds: int,
    warm_up: int = WARM_UP,
) -> dict[str, float]:
    """Return each rival's time of one call, over rounds in which all take their turn."""
    turns = {
        name: partial(seconds_per_call, work, device=device, repeats=repeats, warm_up=warm_up)
        for name, work in works.items()
    }
    return medians_in_turns(turns, rounds=rounds)


def medians_in_turns(
    turns: Mapping[Rival, Callable[[], float]], *, rounds: int
) -> dict[Rival, float]:
    """Return the median of what each rival's turns took; a turn warms up and is timed."""
    times: dict[Rival, list[float]] = {rival: [] for rival in turns}
    for number in range(rounds):
        # Every other round goes backwards, so that nobody always follows the same rival.
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
