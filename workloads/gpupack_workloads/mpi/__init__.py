# SPDX-License-Identifier: Apache-2.0
"""MPI between ranks that mpirun has started: ring, all-reduce, halo exchange, each checked.

    command ─► here ─► session.measure ─► ring, sums, halo: MPI's messages
                                      └─► torch_group: torch.distributed over the same ranks

Imported by its command alone: mpi4py and torch come with what is imported here first.
"""

from gpupack_workloads.mpi.options import MpiOptions
from gpupack_workloads.results import Result


def run(options: MpiOptions) -> Result | None:
    """Do this rank's part.

    Returns:
        What to report, of the first rank of each worker; None of the others.

    Raises:
        WorkloadError: of this rank; mpirun ends the others.
    """
    # Here, so that the command's tests need no MPI.
    from gpupack_workloads.mpi.session import measure  # noqa: PLC0415

    return measure(options)
