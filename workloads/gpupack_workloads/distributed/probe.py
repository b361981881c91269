# SPDX-License-Identifier: Apache-2.0
"""Measures the communication of a gang by a short all-reduce at its start.

It takes half a second at most on any network that a gang can use: the buffer is chosen by the time
that a small one takes.
"""

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final, Protocol

import torch
import torch.distributed as dist

from gpupack_workloads.distributed.transports import TCP, UNKNOWN, Log
from gpupack_workloads.results import Communication

SMALL_BYTES: Final = 2**20
MAX_BYTES: Final = {"nccl": 2**26, "gloo": 2**24}
SECONDS: Final = 0.1
"""What one call with the larger buffer may take."""
CALLS: Final = 3
ELEMENT_BYTES: Final = 4

measured: ContextVar[Communication | None] = ContextVar("communication", default=None)
"""What the last group of this process has found."""


class Group(Protocol):
    """Attributes of a rank that the probe reads."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""

    @property
    def backend(self) -> str:
        """Either nccl or gloo."""


def communication(group: Group, log: Log | None) -> Communication:
    """Measure an all-reduce of the whole gang; all ranks must call it.

    Args:
        group: this process's.
        log: NCCL's, where there is one.
    """
    device = torch.device("cuda") if group.backend == "nccl" else torch.device("cpu")
    with _leaving_no_memory(device):
        _seconds(SMALL_BYTES, device, calls=1)  # makes the connections
        small = _seconds(SMALL_BYTES, device, calls=1)
        size = large_bytes(small, limit_bytes=MAX_BYTES[group.backend])
        _seconds(size, device, calls=1)
        seconds = _seconds(size, device, calls=CALLS)
    bus = size / seconds * 2 * (group.ranks - 1) / group.ranks
    transport = TCP if group.backend == "gloo" else (log.transports() if log else UNKNOWN)
    return Communication(transport=transport, bus_gb_per_s=round(bus / 1e9, 3))


def large_bytes(small_seconds: float, *, limit_bytes: int) -> int:
    """Return the larger buffer's size: of what a call can do in SECONDS, a power of two."""
    size = SMALL_BYTES
    while size * 2 <= limit_bytes and small_seconds * (size * 2 / SMALL_BYTES) <= SECONDS:
        size *= 2
    return size


def _seconds(size_bytes: int, device: torch.device, *, calls: int) -> float:
    """Return what a call takes on the slowest rank, by which all ranks go on."""
    buffer = torch.zeros(size_bytes // ELEMENT_BYTES, device=device)
    dist.barrier()
    _wait(device)
    began = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(buffer)
    _wait(device)
    taken = torch.tensor((time.perf_counter() - began) / calls, device=device)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    return float(taken.item())


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def _leaving_no_memory(device: torch.device) -> Iterator[None]:
    """Give back what the probe's buffers took, so that the work finds the GPU as it was."""
    yield
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
