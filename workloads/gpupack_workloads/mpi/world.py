# SPDX-License-Identifier: Apache-2.0
"""The ranks that mpirun has started, and the transfer of their tensors into messages.

    CPU                            the tensor's own memory
    GPU, MPI is CUDA-aware         the tensor's own memory: MPI reads and writes the GPU's
    GPU, MPI is not                pinned memory of the host, copied to and fro around each message

Whether an MPI is CUDA-aware it says itself (MPIX_Query_cuda_support of Open MPI,
MPIX_GPU_query_support of MPICH); one that says so must bring a message from GPU to GPU unharmed.
"""

import ctypes
import enum
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpi4py
import torch

mpi4py.rc.finalize = False  # a rank that fails must end, and not wait in MPI_Finalize for others

from mpi4py import MPI  # noqa: E402  the setting above is read when it is imported

from gpupack_workloads.devices import Device, choose_device  # noqa: E402
from gpupack_workloads.errors import WrongResult  # noqa: E402

MPICH_CUDA = 0
"""MPIX_GPU_SUPPORT_CUDA of MPICH's mpi.h."""
PROBE_ELEMENTS = 4096
MAPPED = 6
"""Fields of a line of /proc/self/maps that has a file; see proc(5)."""


class Memory(enum.StrEnum):
    """Memory in which MPI gets messages."""

    HOST = "host memory"
    CUDA_AWARE = "GPU memory"
    STAGED = "GPU memory by way of the host's"


@dataclass(frozen=True)
class World:
    """This rank among all ranks.

    Attributes:
        comm: all ranks.
        index: which, from 0.
        ranks: how many there are.
        local_index: which of this worker's, from 0.
        local_ranks: how many this worker has.
        workers: how many workers have ranks.
        device: its device.
        memory: memory of messages.
    """

    comm: MPI.Intracomm
    index: int
    ranks: int
    local_index: int
    local_ranks: int
    workers: int
    device: Device
    memory: Memory

    def exchange(self, out: torch.Tensor, into: torch.Tensor, *, dest: int, source: int) -> None:
        """Send one tensor and receive another; both contiguous; MPI.PROC_NULL is no rank."""
        sent, received = self.message(out), self.message(into, filled=False)
        self.comm.Sendrecv(sent, dest, recvbuf=received, source=source)
        if source != MPI.PROC_NULL:
            self.unpack(received, into)

    def sum(self, out: torch.Tensor, into: torch.Tensor) -> None:
        """Sum a tensor over all ranks into another."""
        sent, received = self.message(out), self.message(into, filled=False)
        self.comm.Allreduce(sent, received, MPI.SUM)
        self.unpack(received, into)

    def message(self, tensor: torch.Tensor, *, filled: bool = True) -> Any:
        """Return what MPI takes for a tensor, with its content where that is sent."""
        if self.memory is Memory.HOST:
            return tensor.numpy()
        if self.memory is Memory.CUDA_AWARE:
            # MPI knows nothing of torch's streams.
            torch.cuda.current_stream().synchronize()
            return tensor
        host = _pinned(tensor)
        if filled:
            host.copy_(tensor, non_blocking=True)
            torch.cuda.current_stream().synchronize()
        return host.numpy()

    def unpack(self, received: Any, into: torch.Tensor) -> None:
        """Copy a received message to its tensor, unless it is there already."""
        if self.memory is Memory.STAGED:
            into.copy_(torch.from_numpy(received), non_blocking=True)
            torch.cuda.current_stream().synchronize()

    def slowest(self, seconds: float) -> float:
        """Return the longest time of all ranks."""
        return float(self.comm.allreduce(seconds, MPI.MAX))

    def all_true(self, *, mine: bool) -> bool:
        """Return whether it is so for all ranks."""
        return bool(self.comm.allreduce(mine, MPI.LAND))

    def settle(self) -> None:
        """Wait until the device has finished its work."""
        if not self.device.simulated:
            torch.cuda.synchronize()


_staging: dict[tuple[int, torch.dtype], torch.Tensor] = {}


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Return pinned memory for a tensor; the same each time, since pinning takes milliseconds."""
    key = (tensor.data_ptr(), tensor.dtype)
    found = _staging.get(key)
    if found is None or found.numel() != tensor.numel():
        found = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        _staging[key] = found
    return found.view(tensor.shape)


def forget_staging() -> None:
    """Free pinned memory whose tensors are no longer in use."""
    _staging.clear()


def join(*, require_gpu: bool) -> World:
    """Find out where this rank is, what it computes on, and how its messages go.

    Raises:
        NoSuchDevice: this rank has no GPU and needs one.
        WrongResult: MPI says that it is CUDA-aware, and harms what it carries.
    """
    comm = MPI.COMM_WORLD
    mine = (os.environ.get("GPUPACK_WORKER_INDEX", ""), socket.gethostname())
    places = comm.allgather(mine)
    local_index = places[: comm.rank].count(mine)
    device = choose_device(require_gpu=require_gpu, index=local_index)
    aware = comm.allreduce(device.simulated or says_cuda_aware(), MPI.LAND)
    memory = Memory.HOST if device.simulated else Memory.CUDA_AWARE if aware else Memory.STAGED
    world = World(
        comm=comm,
        index=comm.rank,
        ranks=comm.size,
        local_index=local_index,
        local_ranks=places.count(mine),
        workers=len(set(places)),
        device=device,
        memory=memory,
    )
    prove(world)
    return world


def prove(world: World) -> None:
    """Pass a message around the ring: what comes is what the left neighbour has sent."""
    sent = torch.full((PROBE_ELEMENTS,), float(world.index), device=world.device.torch)
    found = torch.full_like(sent, -1.0)
    left = (world.index - 1) % world.ranks
    world.exchange(sent, found, dest=(world.index + 1) % world.ranks, source=left)
    if not bool((found == left).all()):
        raise WrongResult(f"MPI has not brought the message of rank {left}, in {world.memory}")


def says_cuda_aware() -> bool:
    """Return whether the MPI that this process uses says that it takes memory of GPUs."""
    library = ctypes.CDLL(str(loaded_library()))
    if query := getattr(library, "MPIX_Query_cuda_support", None):
        return bool(query())
    if query := getattr(library, "MPIX_GPU_query_support", None):
        supported = ctypes.c_int(0)
        return query(MPICH_CUDA, ctypes.byref(supported)) == 0 and bool(supported.value)
    return False


def loaded_library() -> Path:
    """Return the file of the MPI library in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {Path(fields[5]) for line in lines if len(fields := line.split(maxsplit=5)) == MAPPED}
    found = sorted(file for file in files if file.name.startswith(("libmpi.so", "libmpich.so")))
    return found[0] if found else Path("libmpi.so")
