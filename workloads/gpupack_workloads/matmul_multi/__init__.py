# SPDX-License-Identifier: Apache-2.0
"""One large product C[S, S] = A[S, S] @ B[S, S] over all GPUs of the gang, compared with one.

    options       options of the command line
    operands      matrices of which every rank can make every block
    exchange      transfer of blocks: protocol, and a transfer under way
    copy_engine   … by copies out of peers' memory, which take no multiprocessor
    messages      … by send and receive (NCCL, gloo)
    layout        description of a way to split the product
    rows          1-D: A and C by rows, B gathered
    grid          2-D: A, B and C in blocks, panels shifted along rows and columns
    split_k       A by columns, B by rows, partial sums exchanged
    split_k_all_reduce  … and the sum sent to all ranks
    check         checksums that find a wrong tile
    timed_turns   times all of them against one GPU
    memory_estimate  memory that they need
    session       the work of each process
    summary       the result

B is kept transposed, Bt[N, K], as the weights of a linear layer are: every block that travels is
contiguous then. Shapes carry suffixes: M rows of A, N columns of B, K what is summed over.
"""

from gpupack_workloads.matmul_multi.options import MatmulMultiOptions
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang


def run(options: MatmulMultiOptions, gang: Gang) -> Result:
    """Run the workload. The command line imports `options` from here, so torch comes only now."""
    from gpupack_workloads.distributed.launch import launch  # noqa: PLC0415
    from gpupack_workloads.matmul_multi.session import measure  # noqa: PLC0415

    return launch(measure, options, gang)
