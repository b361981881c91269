# SPDX-License-Identifier: Apache-2.0
"""Times work on a device.

On a GPU one pair of CUDA events stands around all repetitions, after a warm-up: launch gaps are
hidden as in real use, and no cache is flushed, because matrices and buffers of the default sizes do
not fit into it anyway.

Rivals are timed in turns: what one of them does to the chip's power and clocks meets the next.
"""

import statistics
import time
from collections.abc import Callable, Mapping

import torch

WARM_UP = 5


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
    """Return each rival's time of one call: the median of rounds in which all take their turn."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds):
        # Every other round goes backwards, so that nobody always follows the same rival.
        for name in list(works)[:: -1 if turn % 2 else 1]:
            warm = warm_up if turn == 0 else 0
            times[name].append(
                seconds_per_call(works[name], device=device, repeats=repeats, warm_up=warm)
            )
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _gpu_seconds(work: Callable[[], object], repeats: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
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
