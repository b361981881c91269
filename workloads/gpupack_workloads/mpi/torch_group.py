# SPDX-License-Identifier: Apache-2.0
"""torch.distributed over the ranks that mpirun has started: NCCL on GPUs, gloo without.

Rank 0 says by MPI where its store is. NCCL refuses two ranks on one GPU, as shares may be: gloo
then.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

from gpupack_workloads.distributed.rendezvous import address_of
from gpupack_workloads.mpi.world import World

TIMEOUT = timedelta(minutes=2)


@contextlib.contextmanager
def group(world: World) -> Iterator[str]:
    """Join a group of all ranks for as long as the context lasts; gives the backend's name."""
    backend = "nccl" if _one_gpu_each(world) else "gloo"
    dist.init_process_group(
        backend,
        store=_store(world),
        rank=world.index,
        world_size=world.ranks,
        timeout=TIMEOUT,
        device_id=world.device.torch if backend == "nccl" else None,
    )
    try:
        yield backend
    finally:
        dist.destroy_process_group()


def sum_in_place(tensor: torch.Tensor) -> None:
    """Sum a tensor over the group."""
    dist.all_reduce(tensor)


def _one_gpu_each(world: World) -> bool:
    if world.device.simulated:
        return False
    mine = str(torch.cuda.get_device_properties(world.device.torch).uuid)
    found = world.comm.allgather(mine)
    return len(set(found)) == world.ranks


def _store(world: World) -> dist.TCPStore:
    """Return the store: rank 0 listens first, on a port of the kernel, and broadcasts the port."""
    if world.index == 0:
        host = _address()
        store = dist.TCPStore(
            host, 0, world.ranks, is_master=True, timeout=TIMEOUT, wait_for_workers=False
        )
        world.comm.bcast((host, store.port))
        return store
    host, port = world.comm.bcast(None)
    return dist.TCPStore(host, port, world.ranks, timeout=TIMEOUT, wait_for_workers=False)


def _address() -> str:
    """Return where the other ranks find this one: a pod's name leads to its own address."""
    host, _, _ = os.environ.get("GPUPACK_RENDEZVOUS", "").rpartition(":")
    for name in (host, socket.gethostname()):
        with contextlib.suppress(OSError):
            return address_of(name or socket.gethostname())
    return "127.0.0.1"
