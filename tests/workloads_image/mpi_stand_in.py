# SPDX-License-Identifier: Apache-2.0
"""MPI with one rank, for tests without messages."""

import contextlib
import importlib
import sys
import types

import numpy as np

PARTS = ("world", "memory_check", "ring", "sums", "halo", "torch_group", "session")
NO_RANK = -2


class Alone:
    """The communicator."""

    rank, size = 0, 1

    def allgather(self, value):
        return [value]

    def allreduce(self, value, op=None):
        return value

    def bcast(self, value):
        return value

    def Barrier(self):  # noqa: N802
        pass

    def Allreduce(self, sent, received, op):  # noqa: N802
        np.copyto(received, sent)

    def Sendrecv(self, sent, dest, recvbuf, source):  # noqa: N802
        if source != NO_RANK:
            np.copyto(recvbuf, sent)

    def Create_cart(self, dims, periods, reorder):  # noqa: N802
        return self

    def Get_coords(self, rank):  # noqa: N802
        return [0, 0]

    def Shift(self, dimension, step):  # noqa: N802
        return NO_RANK, NO_RANK

    def Free(self):  # noqa: N802
        pass


@contextlib.contextmanager
def parts_of_mpi(monkeypatch):
    """Give the workload's modules, imported again over the stand-in, by their names."""
    mpi = types.ModuleType("mpi4py.MPI")
    mpi.COMM_WORLD = Alone()
    mpi.Intracomm = mpi.Cartcomm = Alone
    mpi.MIN, mpi.MAX, mpi.SUM, mpi.LAND = min, max, sum, all
    mpi.PROC_NULL = NO_RANK
    mpi.Compute_dims = lambda ranks, dimensions: [ranks, 1]
    mpi.Get_library_version = lambda: "a stand-in, of one rank"
    mpi.Finalize = lambda: None
    package = types.ModuleType("mpi4py")
    package.rc, package.MPI = types.SimpleNamespace(), mpi
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "mpi4py", package)
        patch.setitem(sys.modules, "mpi4py.MPI", mpi)
        names = [f"gpupack_workloads.mpi.{part}" for part in PARTS]
        before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
        try:
            found = [importlib.import_module(name) for name in names]
            yield types.SimpleNamespace(**dict(zip(PARTS, found, strict=True)))
        finally:
            for name in names:
                sys.modules.pop(name, None)
            sys.modules.update(before)
