# SPDX-License-Identifier: Apache-2.0
"""`mpi`."""

import logging
import os
import sys
from typing import Any

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.errors import WorkloadError
from gpupack_workloads.mpi.options import (
    LARGEST_BYTES,
    LARGEST_GRID,
    MAX_SWEEPS,
    SMALLEST_BYTES,
    SMALLEST_GRID,
    MpiOptions,
)
from gpupack_workloads.results import Result
from gpupack_workloads.signals import ended_by_signals

logger = logging.getLogger(__name__)


@click.command("mpi")
@click.option(
    "--size",
    type=click.IntRange(SMALLEST_BYTES, LARGEST_BYTES),
    help="Bytes of the largest message.  [default: 64 MiB on GPUs, 256 KiB without]",
)
@click.option(
    "--grid",
    type=click.IntRange(SMALLEST_GRID, LARGEST_GRID),
    help="Rows and columns of the stencil's grid.  [default: 8192 on GPUs, 128 without]",
)
@click.option("--sweeps", type=click.IntRange(1, MAX_SWEEPS), default=50, help="Over that grid.")
@common
def command(*, as_json: bool, **arguments: Any) -> None:
    """Run ring, all-reduce and halo exchange by MPI, started by mpirun; checked, against NCCL."""
    options = MpiOptions(**arguments)

    def run(module: Any) -> Result:
        result: Result | None = module.run(options)
        if result is None:
            # The first rank of a worker reports for it.
            sys.exit(0)
        return result

    try:
        # By the signal, as the launcher expects of a rank that mpirun has ended. In a call of MPI's
        # that waits for others nothing of Python's would hear it, either.
        finish("mpi", run, as_json=as_json, signals=ended_by_signals)
    except SystemExit as ended:
        if ended.code:
            _leave(int(ended.code))
        raise
    except Exception:
        logger.exception("not expected")
        _leave(WorkloadError.exit_status)
        raise


def _leave(status: int) -> None:
    """End without what Python and the libraries do at the end, where MPI is in the process.

    torch's group and MPI would wait there for ranks that mpirun ends when this one has ended.
    """
    if "mpi4py.MPI" in sys.modules:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
