# SPDX-License-Identifier: Apache-2.0
"""Bandwidth of copies within the device, and from and to the host's pinned memory.

What arrived is compared with what was sent, after the timing.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from gpupack_workloads.burn_in.checks import CopyReport
from gpupack_workloads.timing import seconds_per_call

Copy = Callable[[torch.Tensor, torch.Tensor], object]

GB = 1e9


@dataclass(frozen=True)
class Sizes:
    """Bytes and number of copies; large enough that caches do not count."""

    device_bytes: int
    host_bytes: int
    repeats: int


def measure(
    device: torch.device, sizes: Sizes, *, copy: Copy, seed: int
) -> Iterator[tuple[str, CopyReport]]:
    """Return bandwidth and truth of each direction, as they come."""
    there, back = (_bytes(sizes.device_bytes, device, seed + number) for number in range(2))
    # A copy within the device reads and writes: each byte counts twice, as vendors count it.
    yield "device_copy", _timed(copy, back, there, sizes.repeats, traffic=2)
    host = _pinned(_bytes(sizes.host_bytes, torch.device("cpu"), seed), device)
    there, back = there[: sizes.host_bytes], torch.zeros_like(host)
    back = _pinned(back, device)
    yield "host_to_device", _timed(copy, there, host, sizes.repeats)
    yield "device_to_host", _timed(copy, back, there, sizes.repeats)


def _timed(
    copy: Copy, to: torch.Tensor, source: torch.Tensor, repeats: int, *, traffic: int = 1
) -> CopyReport:
    device = to.device if to.is_cuda else source.device
    once = partial(seconds_per_call, partial(copy, to, source), device=device, repeats=1, warm_up=0)
    once()
    median = statistics.median(once() for _ in range(repeats))
    changed = not torch.equal(to, source.to(to.device))
    return CopyReport(gb_per_s=traffic * to.numel() / median / GB, changed=changed)


def _bytes(count: int, device: torch.device, seed: int) -> torch.Tensor:
    chance = torch.Generator(device).manual_seed(seed)
    return torch.randint(0, 256, (count,), generator=chance, device=device, dtype=torch.uint8)


def _pinned(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    return host.pin_memory() if device.type == "cuda" else host
