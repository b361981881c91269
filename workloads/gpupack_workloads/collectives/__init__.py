# SPDX-License-Identifier: Apache-2.0
"""Collective operations over every process of every worker, checked exactly.

    options     options of the command line
    rank_data   which rank this is, and its data: whole numbers that every rank can compute
    operation   what is known of one: all_reduce, all_gather, reduce_scatter, broadcast,
                all_to_all, send_recv, reduce, gather and scatter, each with what must arrive
    series      calls one after another, each of which leaves a result to check
    measure     time and check of one operation at one size
    small       small all-reduces by several methods
    tune        NCCL's settings tried against its defaults
    plots       figures of the table
    rank        what each process does; summary: the result
    start       starts the processes

Sizes and bandwidths are those of nccl-tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md; of
gather and scatter, which it does not name, src/gather.cu and src/scatter.cu).
"""

from gpupack_workloads.collectives.options import CollectivesOptions
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang


def run(options: CollectivesOptions, gang: Gang) -> Result:
    """Run the workload. The command line imports `options` from here, so torch comes only now."""
    from gpupack_workloads.collectives.start import start  # noqa: PLC0415

    return start(options, gang)
