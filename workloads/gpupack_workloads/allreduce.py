# SPDX-License-Identifier: Apache-2.0
"""All-reduce over every process of every worker."""

from gpupack_workloads.allreduce_rank import measure
from gpupack_workloads.distributed.launch import launch
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang, Options


def run(options: Options, gang: Gang) -> Result:
    """Run this worker's processes; return what the first of them reports.

    Raises:
        WorkloadError: as `launch` does.
    """
    return launch(measure, options, gang)
