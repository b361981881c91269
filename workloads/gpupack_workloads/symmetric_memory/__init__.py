# SPDX-License-Identifier: Apache-2.0
"""Symmetric memory: one-sided puts and gets, and an all-gather fused into a product.

    options         options of the command line
    shared_buffers  memory that all ranks of a host can access: torch's symmetric memory, or files
    one_sided       puts and gets by kernels and by copies, against NCCL's send and receive
    gathered        products with a matrix that is being gathered, against NCCL's all-gather
    nvshmem         the same puts and gets by NVSHMEM, if its Python package is installed
    session         the work of each process, and the result

The kernels are gpupack_kernels' communication/peer (a put with its signal) and operators/gemm (a
product that begins while rows still arrive).
"""

from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang
from gpupack_workloads.symmetric_memory.options import SymmetricMemoryOptions


def run(options: SymmetricMemoryOptions, gang: Gang) -> Result:
    """Run the workload. The command line imports `options` from here, so torch comes only now."""
    from gpupack_workloads.symmetric_memory.session import start  # noqa: PLC0415

    return start(options, gang)
