# SPDX-License-Identifier: Apache-2.0
"""Launches the all-reduce kernel: keeps what outlives a call, checks arguments, sizes the grid."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import triton

from gpupack_kernels.communication.all_reduce.kernel import all_reduce_kernel
from gpupack_kernels.errors import Unsupported

LARGEST_BYTES = 2**16
CALLS_IN_FLIGHT = 2
# One warp per program needs no barrier within the SM while it waits. 64 KiB give 128 programs,
# one for nearly every SM of an H200.
TILE = 128
WARPS = 1


class AllReduce:
    """Sums buffers of 32-bit floats of up to `largest_bytes` over ranks that reach one another.

    All ranks must make the same calls with the same sizes in the same order, on one stream each.

    Args:
        inboxes: by rank, the address of `inbox_words` words of 8 bytes, zero at the start, which
            every rank can write.
        rank: ours.
        device: where the buffers are.
        largest_bytes: bytes of one buffer; the inboxes were made for it.
        owner: owner of the inboxes' memory, kept as long as this object.
    """

    def __init__(
        self,
        inboxes: Sequence[int],
        *,
        rank: int,
        device: torch.device,
        largest_bytes: int = LARGEST_BYTES,
        owner: object = None,
    ) -> None:
        self._owner = owner
        self._rank, self._ranks = rank, len(inboxes)
        self._places = math.ceil(largest_bytes / 4)
        self._inboxes = torch.tensor(inboxes, dtype=torch.int64, device=device)
        self._calls = torch.zeros(math.ceil(self._places / TILE), dtype=torch.int32, device=device)

    def __call__(self, mine: torch.Tensor, total: torch.Tensor) -> None:
        """Write the sum of all ranks' `mine` to `total`, which may be the same tensor.

        Raises:
            Unsupported: types, sizes or layouts do not fit.
        """
        self.bind(mine, total)()

    def bind(self, mine: torch.Tensor, total: torch.Tensor) -> Callable[[], object]:
        """Return the call that sums these two tensors again and again.

        Checks, and Triton's choice of a compiled kernel, take longer than the kernel runs: here
        they are done once.

        Raises:
            Unsupported: types, sizes or layouts do not fit.
        """
        self._check(mine, total)
        count = mine.numel()
        grid = (math.ceil(count / TILE), 1, 1)
        tensors = (mine, total, self._inboxes, self._calls)
        numbers = (count, self._places, self._rank, self._ranks, TILE)
        if not isinstance(all_reduce_kernel, triton.runtime.JITFunction):
            return partial(all_reduce_kernel[grid], *tensors, *numbers)
        compiled = all_reduce_kernel.warmup(*tensors, *numbers, num_warps=WARPS, grid=grid)
        return Bound(compiled, grid, tensors, numbers)

    def _check(self, mine: torch.Tensor, total: torch.Tensor) -> None:
        if mine.dtype != torch.float32 or total.dtype != torch.float32:
            raise Unsupported(f"cannot sum {mine.dtype} into {total.dtype}; both must be float32")
        if mine.shape != total.shape or not 0 < mine.numel() <= self._places:
            raise Unsupported(
                f"cannot sum {mine.numel()} elements into {total.numel()}:"
                f" sizes must be equal and 1 to {self._places}"
            )
        if not (mine.is_contiguous() and total.is_contiguous()):
            raise Unsupported("both buffers must be contiguous")


class Bound:
    """A compiled kernel with its grid and arguments.

    Past what Triton does at each launch, which takes longer than the sum: it asks for device and
    stream, makes metadata for hooks that are not set, and looks each tensor up. The launcher
    takes addresses as they are; the tensors are kept, so that the addresses stay theirs.

    Args:
        compiled: by Triton, for these types and constants.
        grid: its three numbers of programs.
        tensors: the kernel's first arguments, all on one GPU.
        numbers: its others.
    """

    def __init__(
        self,
        compiled: Any,
        grid: tuple[int, int, int],
        tensors: Sequence[torch.Tensor],
        numbers: Sequence[int],
    ) -> None:
        # Loads the kernel onto the current GPU; `function` is not known before.
        compiled[grid]
        self._run, self._grid, self._tensors = compiled.run, grid, tensors
        self._device = tensors[0].device.index
        metadata, hooks = (compiled.packed_metadata, None), (None, None)
        addresses = (tensor.data_ptr() for tensor in tensors)
        self._arguments = (compiled.function, *metadata, *hooks, *addresses, *numbers)

    def __call__(self) -> None:
        """Launch on the current stream."""
        stream = torch._C._cuda_getCurrentRawStream(self._device)  # noqa: SLF001  as Triton asks
        self._run(*self._grid, stream, *self._arguments)


def inbox_words(*, ranks: int, largest_bytes: int = LARGEST_BYTES) -> int:
    """Return how many words of 8 bytes a rank's inbox needs."""
    return CALLS_IN_FLIGHT * ranks * math.ceil(largest_bytes / 4)


def symmetric_all_reduce(group: dist.ProcessGroup, device: torch.device) -> AllReduce:
    """Return the sum over a group of GPUs of one host; all ranks must call this together."""
    import torch.distributed._symmetric_memory as symmetric  # noqa: PLC0415  only GPUs have it

    inbox = symmetric.empty(inbox_words(ranks=group.size()), dtype=torch.int64, device=device)
    handle = symmetric.rendezvous(inbox, group)
    inbox.zero_()
    # No rank may write into an inbox that its owner has not cleared.
    torch.cuda.synchronize(device)
    dist.barrier(group)
    return AllReduce(handle.buffer_ptrs, rank=group.rank(), device=device, owner=(inbox, handle))
