# SPDX-License-Identifier: Apache-2.0
"""Times work on a device.

On a GPU one pair of CUDA events stands around all repetitions, after a warm-up: launch gaps are
hidden as in real use, and no cache is flushed, because matrices and buffers of the default sizes do
not fit into it anyway.
"""

import time
from collections.abc import Callable

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
