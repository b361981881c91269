# SPDX-License-Identifier: Apache-2.0
"""A manager of several GPUs in user space: a worker process for each, and a thread that watches it.

    task_queue      what is to be run, and what became of it
    manager         takes tasks, and starts and ends all the others
    supervisor      a thread per GPU: sends tasks, ends those that hang, replaces their process
    worker_process  the supervisor's side of the process, and the memory that both share
    worker          the process: the GPU's memory pool, its stream, one task at a time
    builtin         tasks: vector addition, products, nothing
    options         options of the command line
    session         the workload `gpu-manager`: checks and times all of it

As a library, in a module without side effects at import (the workers import it again):

    with GpuManager(find_gpus(), pool_bytes=2**30) as manager:
        size = aligned(x.nbytes)
        future = manager.submit(
            vector_add, x, y, memory_bytes=3 * size, result_bytes=size, seconds=5
        )
        total = future.result()

docs/adr/0053-a-worker-process-for-each-gpu.md says why it is made so.
"""

from gpupack_workloads.gpu_manager.options import GpuManagerOptions
from gpupack_workloads.results import Result


def run(options: GpuManagerOptions) -> Result:
    """Run the workload. The command line imports `options` from here, so torch comes only now."""
    from gpupack_workloads.gpu_manager.session import survey  # noqa: PLC0415

    return survey(options)
