# SPDX-License-Identifier: Apache-2.0
"""Collective operations over every process of every worker, checked exactly.

options     what the command line asks for
place       a rank's place and its data: whole numbers that every rank can compute
all_reduce … send_recv   one operation each: what it moves, and what must arrive
measure     time and check of one operation at one size
small       all-reduce of small buffers by symmetric memory, beside NCCL
tune        NCCL's settings tried against its defaults
plots       figures of the table
rank        what each process does
start       starts the processes
"""

from gpupack_workloads.collectives.options import CollectivesOptions
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang


def run(options: CollectivesOptions, gang: Gang) -> Result:
    """Run the workload. The command line imports `options` from here, so torch comes only now."""
    from gpupack_workloads.collectives.start import start  # noqa: PLC0415

    return start(options, gang)
