# SPDX-License-Identifier: Apache-2.0
"""Starts this worker's processes; a signal to end reaches them, and they save before they leave."""

from torch.distributed.elastic.multiprocessing.api import SignalException

from gpupack_workloads.distributed.launch import launch
from gpupack_workloads.errors import Interrupted
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang
from gpupack_workloads.transformer.options import TransformerOptions
from gpupack_workloads.transformer.rank import measure


def run(options: TransformerOptions, gang: Gang) -> Result:
    """Run this worker's processes; return what the first reports.

    Raises:
        Interrupted: a signal to end came, here or at another worker.
        WorkloadError: as `launch` does.
    """
    try:
        return launch(measure, options, gang)
    except SignalException as signalled:
        raise Interrupted(f"told to end by {signalled.sigval.name}") from signalled
