# SPDX-License-Identifier: Apache-2.0
"""Every way to copy bytes from one GPU to another.

    memcpy         cudaMemcpyPeerAsync, on the source's stream: the copy engines
    loads          the target's kernel loads from the source's memory
    stores         the source's kernel stores into the target's memory
    host           through pinned host memory
    triton_loads   as loads, by Triton's kernel
    triton_stores  as stores, by Triton's kernel

Where GPUs have no access to each other, memcpy is the driver's own way through the host, and there
are no loads and stores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from gpupack_kernels.communication.peer import launch as triton_kernels
from gpupack_workloads.p2p.copies import Copy
from gpupack_workloads.p2p_cpp.checks import nothing
from gpupack_workloads.p2p_cpp.runtime import copy_to_peer
from gpupack_workloads.p2p_cpp.sides import Side
from gpupack_workloads.p2p_cpp.staging import Staging

MEMCPY, LOADS, STORES, HOST = "memcpy", "loads", "stores", "host"
TRITON_LOADS, TRITON_STORES = "triton_loads", "triton_stores"
# Those that are timed in both directions at a time as well.
BOTH = (MEMCPY, LOADS, STORES)


@dataclass(frozen=True)
class Way:
    """A way from one side to the other.

    Attributes:
        name: in results.
        side: side whose stream completes the copy.
        copy: begins to copy bytes to a target from a source.
        spoil: overwrites intermediate buffers.
        words: it copies whole words of 64 bits only.
    """

    name: str
    side: Side
    copy: Copy
    spoil: Callable[[], None] = nothing
    words: bool = False


def ways_of(source: Side, target: Side, *, direct: bool) -> dict[str, Way]:
    """Return the ways from one side to the other, except through the host.

    Args:
        source: has the bytes.
        target: gets them.
        direct: whether each has access to the other's memory.
    """
    ways = [Way(MEMCPY, source, partial(_memcpy, source, target))]
    if direct:
        ways += [
            Way(LOADS, target, partial(_by_kernel, target)),
            Way(STORES, source, partial(_by_kernel, source)),
            Way(TRITON_LOADS, target, partial(_by_triton, target), words=True),
            Way(TRITON_STORES, source, partial(_by_triton, source), words=True),
        ]
    return {way.name: way for way in ways}


def through_host(target: Side, staging: Staging) -> Way:
    """Return the way by pinned host memory."""
    return Way(HOST, target, staging.copy, staging.spoil)


def _memcpy(source: Side, target: Side, to: torch.Tensor, of: torch.Tensor) -> None:
    copy_to_peer(
        *(to.data_ptr(), target.device),
        *(of.data_ptr(), source.device),
        count=of.numel(),
        stream=source.stream,
    )


def _by_kernel(side: Side, to: torch.Tensor, of: torch.Tensor) -> None:
    side.kernels.copy(to.data_ptr(), of.data_ptr(), of.numel(), side.stream)


def _by_triton(side: Side, to: torch.Tensor, of: torch.Tensor) -> None:
    with torch.cuda.stream(side.stream.torch):
        triton_kernels.copy(to.view(torch.int64), of.view(torch.int64))
